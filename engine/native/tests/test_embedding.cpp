// A row is the same whether the table is in memory or left in a file.
#include "embedding.h"

#include "check.h"
#include "random_matrix.h"
#include "vault_files.h"

using namespace smoe;

TEST(a_row_in_a_file_has_the_bits_of_one_in_memory) {
  constexpr int kRows = 37, kCols = 72;
  const vault_files::Folder folder;
  for (const Storage storage : {Storage::f32, Storage::f16, Storage::bf16}) {
    const testing::RandomMatrix table(storage, kRows, kCols);
    const std::string before(33, 'x');  // it begins anywhere
    const std::string path =
        folder.write("scout", before + std::string(reinterpret_cast<const char*>(table.data.data()), table.data.size()));
    std::unique_ptr<File> file;
    CHECK_EQ(File::open(path, &file).message, "");
    Embedding in_file(*file, before.size(), storage, kRows, kCols);
    Embedding in_memory({storage, kRows, kCols, table.data.data(), nullptr});
    const Kernels& kernels = *select_kernels();
    for (const int id : {0, 36, 17, 17, 1}) {
      std::vector<float> one(kCols), other(kCols);
      CHECK_EQ(in_file.row(kernels, id, one.data()).message, "");
      CHECK_EQ(in_memory.row(kernels, id, other.data()).message, "");
      CHECK(std::memcmp(one.data(), other.data(), kCols * sizeof(float)) == 0);
    }
    CHECK(!in_file.row(kernels, kRows, std::vector<float>(kCols).data()).message.empty());  // past the file's end
  }
}
