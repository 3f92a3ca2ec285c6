#include <unistd.h>

#include "check.h"
#include "file_io.h"
#include "memory.h"
#include "vault_files.h"

using namespace smoe;
using vault_files::Folder;

static std::string pattern(std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 17 + i / 4096);
  return text;
}

static void every_range_is_right(const Folder& folder) {
  const std::string content = pattern(3 * 4096 + 1234);
  std::unique_ptr<File> file;
  CHECK_EQ(File::open(folder.write("f", content), &file).message, "");
  CHECK_EQ(file->size(), content.size());
  Pages pages;
  CHECK_EQ(Pages::allocate(5 * kIoBlock, &pages).message, "");
  for (std::uint64_t offset = 0; offset < content.size(); offset += kIoBlock)
    for (const std::uint64_t bytes : {1ul, 4095ul, 4096ul, 5000ul, content.size() - offset}) {
      const std::uint64_t fits = std::min(bytes, content.size() - offset);
      CHECK_EQ(file->read_direct(offset, pages.data(), fits).message, "");
      CHECK(std::memcmp(pages.data(), content.data() + offset, fits) == 0);
      CHECK_EQ(file->read(offset + 3, pages.data(), std::min(fits, content.size() - offset - 3)).message, "");
      CHECK(std::memcmp(pages.data(), content.data() + offset + 3, std::min(fits, content.size() - offset - 3)) == 0);
    }
  file->drop_cached(0, content.size());
  CHECK_EQ(file->read_direct(0, pages.data(), 0).message, "");
}

TEST(ranges_on_disk) { every_range_is_right(Folder()); }

TEST(ranges_in_shared_memory) {
  if (::access("/dev/shm", W_OK) != 0) return;
  ::setenv("TMPDIR", "/dev/shm", 1);
  every_range_is_right(Folder());
  ::unsetenv("TMPDIR");
}

TEST(past_the_end) {
  const Folder folder;
  std::unique_ptr<File> file;
  const std::string path = folder.write("f", pattern(5000));
  CHECK_EQ(File::open(path, &file).message, "");
  Pages pages;
  CHECK_EQ(Pages::allocate(4 * kIoBlock, &pages).message, "");
  const std::string end = path + ": read at byte 5000 failed: the file ends there; was it truncated?";
  CHECK_EQ(file->read_direct(4096, pages.data(), 905).message, end);
  CHECK_EQ(file->read(4990, pages.data(), 11).message, end);
  CHECK(bool{file->read_direct(1 << 20, pages.data(), 1)});
}

TEST(text) {
  const Folder folder;
  std::string text;
  CHECK_EQ(read_text(folder.write("t", "hello"), 5, &text).message, "");
  CHECK_EQ(text, "hello");
  CHECK_EQ(read_text(folder.path("t"), 4, &text).message, folder.path("t") + ": 5 bytes, more than the 4 expected");
  CHECK_EQ(read_text(folder.write("e", ""), 4, &text).message, "");
}
