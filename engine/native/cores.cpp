// How many cores this process may keep busy.
#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "threads.h"

#if defined(__linux__)
#include <sched.h>
#endif

namespace smoe {
namespace {

#if defined(__linux__)
int affinity_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set)) return int(std::thread::hardware_concurrency());
  return CPU_COUNT(&set);
}

constexpr double unlimited = 1e9;

// cgroup v2: "max 100000" or "150000 100000", microseconds of processor time and of the period.
double quota_v2(const std::string& directory) {
  double quota, period;
  return std::ifstream(directory + "/cpu.max") >> quota >> period && period > 0 ? quota / period : unlimited;
}

// cgroup v1: -1 where there is no limit.
double quota_v1(const std::string& directory) {
  double quota, period;
  const bool known = std::ifstream(directory + "/cpu.cfs_quota_us") >> quota &&
                     std::ifstream(directory + "/cpu.cfs_period_us") >> period;
  return known && quota > 0 && period > 0 ? quota / period : unlimited;
}

// The strictest limit from the process's own group up to the root.
double strictest(const std::string& mount, std::string path, double (*quota)(const std::string&)) {
  double result = quota(mount);
  for (; path.size() > 1; path.resize(path.find_last_of('/'))) result = std::min(result, quota(mount + path));
  return result;
}

// /proc/self/cgroup: lines of "id:controllers:path"; version 2 has one line with no controllers.
double quota_cores() {
  double result = unlimited;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    std::istringstream fields(line);
    std::string id, controllers, path;
    std::getline(std::getline(std::getline(fields, id, ':'), controllers, ':'), path);
    if (controllers.empty()) result = std::min(result, strictest("/sys/fs/cgroup", path, quota_v2));
    else if (("," + controllers + ",").find(",cpu,") != std::string::npos)
      result = std::min(result, strictest("/sys/fs/cgroup/cpu", path, quota_v1));
  }
  return result;
}

int usable_cores() { return int(std::min(double(affinity_cores()), quota_cores())); }
#else
int usable_cores() { return int(std::thread::hardware_concurrency()); }
#endif

}  // namespace

int available_cores() { return std::max(1, usable_cores()); }

}  // namespace smoe
