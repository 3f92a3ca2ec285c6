#include "memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#if defined(__APPLE__)
#include <mach/mach.h>
#endif

namespace smoe {
namespace {

constexpr std::uint64_t kUnknown = std::numeric_limits<std::uint64_t>::max();

#if defined(__APPLE__)

std::uint64_t system_available(const std::string&) {
  vm_statistics64_data_t pages;
  mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
  vm_size_t page_bytes;
  const host_t host = mach_host_self();
  if (host_page_size(host, &page_bytes) != KERN_SUCCESS) return kUnknown;
  if (host_statistics64(host, HOST_VM_INFO64, reinterpret_cast<host_info64_t>(&pages), &count) != KERN_SUCCESS)
    return kUnknown;
  return (std::uint64_t{pages.free_count} + pages.inactive_count) * page_bytes;
}

std::uint64_t groups_leave(const std::string&) { return kUnknown; }

#else

// The number behind the first line that starts with `key`: "MemAvailable:   123 kB", "inactive_file 4096".
std::optional<std::uint64_t> keyed_number(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    std::uint64_t number;
    if (words >> word >> number && word == key) return number;
  }
  return std::nullopt;
}

// The number that is the file's whole content; none for "max" or where there is no such file.
std::optional<std::uint64_t> lone_number(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t number;
  return file >> number ? std::optional(number) : std::nullopt;
}

std::uint64_t system_available(const std::string& root) {
  const auto kib = keyed_number(root + "/proc/meminfo", "MemAvailable:");
  return kib ? *kib * 1024 : kUnknown;
}

struct GroupFiles {
  std::vector<const char*> limits;
  const char *usage, *inactive;
};

const GroupFiles kVersion2 = {{"memory.max", "memory.high"}, "memory.current", "inactive_file"};
const GroupFiles kVersion1 = {{"memory.limit_in_bytes"}, "memory.usage_in_bytes", "total_inactive_file"};

std::uint64_t group_leaves(const std::string& directory, const GroupFiles& files) {
  std::uint64_t limit = kUnknown;
  for (const char* name : files.limits)
    limit = std::min(limit, lone_number(directory + "/" + name).value_or(kUnknown));
  const auto usage = lone_number(directory + "/" + files.usage);
  if (limit == kUnknown || !usage) return kUnknown;
  const std::uint64_t cache = keyed_number(directory + "/memory.stat", files.inactive).value_or(0);
  const std::uint64_t taken = *usage - std::min(*usage, cache);
  return limit - std::min(limit, taken);
}

// The least that any group from `group` up to the mount point leaves.
std::uint64_t hierarchy_leaves(const std::string& mount, std::string group, const GroupFiles& files) {
  std::uint64_t least = kUnknown;
  for (;;) {
    least = std::min(least, group_leaves(mount + group, files));
    const auto slash = group.rfind('/');
    if (group.empty() || slash == std::string::npos) return least;
    group.resize(slash);
  }
}

struct Mount {
  std::string group, point;  // the group that is mounted, and where
};

// A line of /proc/self/mountinfo (man 5 proc): id parent major:minor root point options [tags] - type source options
std::optional<Mount> memory_mount(const std::string& root, bool version2) {
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const auto dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line.substr(0, dash)), after(line.substr(dash + 3));
    std::string skip, type, source, options;
    Mount mount;
    before >> skip >> skip >> skip >> mount.group >> mount.point;
    after >> type >> source >> options;
    const bool memory = ("," + options + ",").find(",memory,") != std::string::npos;
    if (version2 ? type == "cgroup2" : type == "cgroup" && memory) return mount;
  }
  return std::nullopt;
}

// This process's group from /proc/self/cgroup: "0::/path" (v2) or "9:cpu,memory:/path" (v1).
std::optional<std::string> own_group(const std::string& root, bool version2) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (version2 ? controllers == ",," : controllers.find(",memory,") != std::string::npos)
      return line.substr(second + 1);
  }
  return std::nullopt;
}

std::uint64_t version_leaves(const std::string& root, bool version2) {
  const auto mount = memory_mount(root, version2);
  auto group = own_group(root, version2);
  if (!mount || !group) return kUnknown;
  // In a container the mount may show a part of the hierarchy only: its root is then the container's own group.
  if (mount->group != "/" && group->rfind(mount->group, 0) == 0) group->erase(0, mount->group.size());
  else if (mount->group != "/") group->clear();
  if (group->find("..") != std::string::npos || *group == "/") group->clear();
  return hierarchy_leaves(root + mount->point, *group, version2 ? kVersion2 : kVersion1);
}

std::uint64_t groups_leave(const std::string& root) {
  return std::min(version_leaves(root, true), version_leaves(root, false));
}

#endif

}  // namespace

std::uint64_t available_memory(const std::string& root) {
  return std::min(system_available(root), groups_leave(root));
}

int ring_slots(std::uint64_t available, std::uint64_t reserve, std::uint64_t slot_bytes, int experts) {
  const std::uint64_t budget = available - std::min(available, reserve);
  const std::uint64_t fit = budget / std::max<std::uint64_t>(slot_bytes, 1);
  const std::uint64_t most = static_cast<std::uint64_t>(std::max(experts, 1));
  return static_cast<int>(std::clamp<std::uint64_t>(fit, 1, most));
}

Error Pages::allocate(std::uint64_t bytes, Pages* out) {
  *out = Pages();
  if (bytes == 0) return {};
  void* data = MAP_FAILED;
  if (bytes <= std::numeric_limits<std::size_t>::max() / 2)
    data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return {"memory: " + std::to_string(bytes) + " bytes in one piece: " + std::strerror(errno ? errno : ENOMEM)};
#if defined(MADV_HUGEPAGE)
  ::madvise(data, bytes, MADV_HUGEPAGE);
#endif
  out->data_ = static_cast<unsigned char*>(data);
  out->bytes_ = bytes;
  return {};
}

Pages::~Pages() {
  if (data_) ::munmap(data_, bytes_);
}

Pages::Pages(Pages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace smoe
