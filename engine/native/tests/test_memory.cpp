#include <sys/mman.h>

#include "check.h"
#include "memory.h"
#include "vault_files.h"

using namespace smoe;
using vault_files::Folder;

static constexpr std::uint64_t kMiB = 1 << 20;

// A /proc and /sys of our own: 1000 MiB available, and what a test adds.
struct System {
  Folder folder;
  System() { write("/proc/meminfo", "MemTotal:  4096000 kB\nMemFree: 10 kB\nMemAvailable:  1024000 kB\n"); }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path full = folder.path("root") + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  void mebibytes(const std::string& path, std::uint64_t n) const { write(path, std::to_string(n * kMiB) + "\n"); }
  std::uint64_t available() const { return available_memory(folder.path("root")) / kMiB; }
};

static void version2(const System& system, const std::string& group, const std::string& mounted = "/") {
  system.write("/proc/self/cgroup", "0::" + group + "\n");
  system.write("/proc/self/mountinfo", "24 1 0:22 / /proc rw - proc proc rw\n30 23 0:26 " + mounted +
                                           " /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
}

TEST(without_groups) {
  CHECK_EQ(System().available(), 1000u);
}

TEST(nothing_known) {
  const Folder empty;
  CHECK_EQ(available_memory(empty.path("")), UINT64_MAX);
}

TEST(group_without_a_limit) {
  const System system;
  version2(system, "/a/b");
  system.write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  system.mebibytes("/sys/fs/cgroup/a/b/memory.current", 100);
  CHECK_EQ(system.available(), 1000u);
}

TEST(inactive_file_cache_can_be_reclaimed) {
  const System system;
  version2(system, "/a");
  system.mebibytes("/sys/fs/cgroup/a/memory.max", 512);
  system.mebibytes("/sys/fs/cgroup/a/memory.current", 300);
  CHECK_EQ(system.available(), 212u);
  system.write("/sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 209715200\nactive_file 77\n");  // 200 MiB
  CHECK_EQ(system.available(), 412u);
}

TEST(the_tightest_group_above_counts) {
  const System system;
  version2(system, "/a/b/c");
  system.mebibytes("/sys/fs/cgroup/a/b/c/memory.max", 600);
  system.mebibytes("/sys/fs/cgroup/a/b/c/memory.current", 10);
  system.mebibytes("/sys/fs/cgroup/a/memory.max", 700);
  system.mebibytes("/sys/fs/cgroup/a/memory.current", 650);
  CHECK_EQ(system.available(), 50u);
}

TEST(a_throttling_limit_counts_too) {
  const System system;
  version2(system, "/a");
  system.mebibytes("/sys/fs/cgroup/a/memory.high", 128);
  system.write("/sys/fs/cgroup/a/memory.max", "max\n");
  system.mebibytes("/sys/fs/cgroup/a/memory.current", 28);
  CHECK_EQ(system.available(), 100u);
}

TEST(usage_beyond_the_limit_leaves_nothing) {
  const System system;
  version2(system, "/a");
  system.mebibytes("/sys/fs/cgroup/a/memory.max", 100);
  system.mebibytes("/sys/fs/cgroup/a/memory.current", 150);
  CHECK_EQ(system.available(), 0u);
}

TEST(inside_a_container_the_mount_is_the_group) {
  const System system;
  version2(system, "/docker/abc", "/docker/abc");
  system.mebibytes("/sys/fs/cgroup/memory.max", 200);
  system.mebibytes("/sys/fs/cgroup/memory.current", 50);
  CHECK_EQ(system.available(), 150u);
}

TEST(a_group_namespace_shows_a_path_above_its_root) {
  const System system;
  version2(system, "/../other");
  system.mebibytes("/sys/fs/cgroup/memory.max", 200);
  system.mebibytes("/sys/fs/cgroup/memory.current", 60);
  CHECK_EQ(system.available(), 140u);
}

TEST(version_1) {
  const System system;
  system.write("/proc/self/cgroup", "12:cpu,cpuacct:/x\n9:memory:/user/one\n0::/init.scope\n");
  system.write("/proc/self/mountinfo", "31 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
                                       "33 23 0:29 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n");
  system.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  system.mebibytes("/sys/fs/cgroup/memory/memory.usage_in_bytes", 2000);
  system.mebibytes("/sys/fs/cgroup/memory/user/one/memory.limit_in_bytes", 400);
  system.mebibytes("/sys/fs/cgroup/memory/user/one/memory.usage_in_bytes", 300);
  system.write("/sys/fs/cgroup/memory/user/one/memory.stat", "inactive_file 1\ntotal_inactive_file 104857600\n");
  CHECK_EQ(system.available(), 200u);
}

TEST(this_machine) {
  const std::uint64_t available = available_memory();
  CHECK(available > 0 && available < (std::uint64_t{1} << 50));
}

TEST(pressure) {
  const System system;
  const auto pressed = [&] { return memory_pressed(system.folder.path("root")); };
  CHECK(!pressed());
  system.write("/proc/pressure/memory", "some avg10=9.99 avg60=50.00 avg300=50.00 total=1\nfull avg10=0.00\n");
  CHECK(!pressed());
  system.write("/proc/pressure/memory", "some avg10=10.00 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00\n");
  CHECK(pressed());
  system.write("/proc/pressure/memory", "nonsense\n");
  version2(system, "/a");
  system.write("/sys/fs/cgroup/a/memory.pressure", "some avg10=80.00 avg60=0.00 avg300=0.00 total=1\n");
  CHECK(pressed());
}

// Linux from 5.14 on; qemu's user mode says so and does not.
bool kernel_populates() {
#if defined(MADV_POPULATE_WRITE)
  Pages page;
  unsigned char resident = 0;
  if (Pages::allocate(1, &page) || ::madvise(page.data(), 1, MADV_POPULATE_WRITE) != 0) return false;
  return ::mincore(page.data(), 1, &resident) == 0 && (resident & 1) != 0;
#else
  return false;
#endif
}

TEST(pages_come_and_go) {
  Pages pages;
  const std::uint64_t whole = 8 * kMiB;
  CHECK_EQ(Pages::allocate(whole, &pages).message, "");
  CHECK_EQ(pages.resident(), 0u);
  pages.touch(3 * kMiB, 1);
  pages.touch(whole, whole);  // none of its own
  CHECK(pages.resident() < whole);
  if (kernel_populates()) CHECK(pages.resident() > 0);
  CHECK_EQ(int{pages.data()[3 * kMiB]}, 0);
  std::memset(pages.data(), 1, whole);
  CHECK_EQ(pages.resident(), whole);
  pages.discard(2 * kMiB, 4 * kMiB);
#if !defined(__APPLE__)
  CHECK_EQ(pages.resident(), 4 * kMiB);
  CHECK_EQ(int{pages.data()[3 * kMiB]}, 0);
#endif
  CHECK_EQ(int{pages.data()[2 * kMiB - 1]}, 1);
  CHECK_EQ(int{pages.data()[6 * kMiB]}, 1);
  pages.discard(100, 200);  // no whole page
  CHECK_EQ(int{pages.data()[100]}, 1);
}

TEST(pages) {
  Pages pages, other;
  CHECK_EQ(Pages::allocate(100000, &pages).message, "");
  CHECK_EQ(int{pages.data()[99999]}, 0);
  pages.data()[99999] = 7;
  other = std::move(pages);
  CHECK_EQ(int{other.data()[99999]}, 7);
  CHECK_EQ(other.bytes(), 100000u);
  CHECK_EQ(Pages::allocate(0, &other).message, "");
  CHECK(other.data() == nullptr);
  CHECK(Pages::allocate(std::uint64_t{1} << 63, &other).message.find("memory: ") == 0);
}
