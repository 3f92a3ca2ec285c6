#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
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

bool pressed(const std::string&) { return false; }

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

struct Place {
  std::string mount, group;  // directories: where the hierarchy is, and this process's group in it
};

std::optional<Place> own_place(const std::string& root, bool version2) {
  const auto mount = memory_mount(root, version2);
  auto group = own_group(root, version2);
  if (!mount || !group) return std::nullopt;
  // In a container the mount may show a part of the hierarchy only: its root is then the container's own group.
  if (mount->group != "/" && group->rfind(mount->group, 0) == 0) group->erase(0, mount->group.size());
  else if (mount->group != "/") group->clear();
  if (group->find("..") != std::string::npos || *group == "/") group->clear();
  return Place{root + mount->point, *group};
}

std::uint64_t version_leaves(const std::string& root, bool version2) {
  const auto place = own_place(root, version2);
  return place ? hierarchy_leaves(place->mount, place->group, version2 ? kVersion2 : kVersion1) : kUnknown;
}

std::uint64_t groups_leave(const std::string& root) {
  return std::min(version_leaves(root, true), version_leaves(root, false));
}

// "some avg10=1.23 avg60=..." (https://docs.kernel.org/accounting/psi.html): per cent of the time.
bool stalls(const std::string& path) {
  constexpr double kNoticeable = 10;
  std::ifstream file(path);
  std::string some, share;
  if (!(file >> some >> share) || share.rfind("avg10=", 0) != 0) return false;
  return std::strtod(share.c_str() + 6, nullptr) >= kNoticeable;
}

bool pressed(const std::string& root) {
  const auto place = own_place(root, true);
  return stalls(root + "/proc/pressure/memory") || (place && stalls(place->mount + place->group + "/memory.pressure"));
}

#endif

}  // namespace

std::uint64_t available_memory(const std::string& root) {
  return std::min(system_available(root), groups_leave(root));
}

bool memory_pressed(const std::string& root) { return pressed(root); }

std::uint64_t page_bytes() { return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)); }

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

void Pages::discard(std::uint64_t offset, std::uint64_t bytes) {
#if defined(__APPLE__)
  constexpr int kAdvice = MADV_FREE;
#else
  constexpr int kAdvice = MADV_DONTNEED;
#endif
  const auto [begin, end] = whole_pages(offset, bytes);
  if (begin < end) ::madvise(data_ + begin, end - begin, kAdvice);
}

std::pair<std::uint64_t, std::uint64_t> Pages::whole_pages(std::uint64_t offset, std::uint64_t bytes) const {
  const std::uint64_t page = page_bytes();
  return {(offset + page - 1) / page * page, std::min(offset + bytes, bytes_) / page * page};
}

void Pages::keep_small([[maybe_unused]] std::uint64_t offset, [[maybe_unused]] std::uint64_t bytes) {
#if defined(MADV_NOHUGEPAGE)
  const auto [begin, end] = whole_pages(offset, bytes);
  if (begin < end) ::madvise(data_ + begin, end - begin, MADV_NOHUGEPAGE);
#endif
}

void Pages::touch([[maybe_unused]] std::uint64_t offset, [[maybe_unused]] std::uint64_t bytes) {
#if defined(MADV_POPULATE_WRITE)
  const std::uint64_t page = page_bytes();
  const std::uint64_t begin = offset / page * page, end = std::min(offset + bytes, bytes_);
  if (begin < end) ::madvise(data_ + begin, end - begin, MADV_POPULATE_WRITE);
#endif
}

std::uint64_t Pages::resident() const {
#if defined(__APPLE__)
  using Flag = char;
#else
  using Flag = unsigned char;
#endif
  const std::uint64_t page = page_bytes();
  std::vector<Flag> flags(4096);
  std::uint64_t count = 0;
  for (std::uint64_t at = 0; at < bytes_; at += flags.size() * page) {
    const std::uint64_t bytes = std::min(bytes_ - at, flags.size() * page);
    if (::mincore(data_ + at, bytes, flags.data()) != 0) return bytes_;
    const auto end = flags.begin() + static_cast<std::ptrdiff_t>((bytes + page - 1) / page);
    count += static_cast<std::uint64_t>(std::count_if(flags.begin(), end, [](Flag flag) { return (flag & 1) != 0; }));
  }
  return std::min(count * page, bytes_);
}

Pages::Pages(Pages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace smoe
