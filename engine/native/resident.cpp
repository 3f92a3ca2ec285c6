#include "resident.h"

#if defined(__APPLE__)
#include <mach/mach.h>
#else
#include <unistd.h>

#include <fstream>
#endif

namespace smoe {

#if defined(__APPLE__)

std::uint64_t resident_memory() {
  mach_task_basic_info info{};
  mach_msg_type_number_t count = MACH_TASK_BASIC_INFO_COUNT;
  const kern_return_t result =
      task_info(mach_task_self(), MACH_TASK_BASIC_INFO, reinterpret_cast<task_info_t>(&info), &count);
  return result == KERN_SUCCESS ? info.resident_size : 0;
}

#else

std::uint64_t resident_memory() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t total = 0, resident = 0;  // pages
  statm >> total >> resident;
  return statm ? resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

#endif

}  // namespace smoe
