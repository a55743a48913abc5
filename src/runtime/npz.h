// Files in NumPy's .npz format: a zip archive of .npy arrays, not compressed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "turnout/tensor.h"

namespace turnout::core {

// The file is a complete archive after each finish(). Arrays that are added later replace its directory, so a
// process that ends in between leaves what was there before unreadable for as long as add() takes only.
// All functions throw Error(internal) if the file cannot be written.
class NpzFile {
 public:
  explicit NpzFile(std::string path);  // a new file; one that exists is an error
  ~NpzFile();
  NpzFile(const NpzFile&) = delete;
  NpzFile& operator=(const NpzFile&) = delete;

  // An array, in row-major order whatever its strides. Types that NumPy does not have are stored as unsigned
  // integers of their size, and their name is added to that of the array: "x.bf16". Returns false, and adds
  // nothing, if the memory cannot be read.
  bool add(std::string_view name, const ConstTensor& array);
  void add_integers(std::string_view name, std::span<const std::int64_t> values);
  void add_integer(std::string_view name, std::int64_t value);
  void add_text(std::string_view name, std::string_view text);  // an array of bytes without dimensions
  void finish();

  const std::string& path() const { return path_; }

 private:
  struct Entry {
    std::string name;
    std::uint32_t crc;
    std::uint64_t size, offset;
  };

  bool add_entry(std::string_view name, std::string_view head, const void* data, std::uint64_t bytes);
  // Returns false if `data` is not readable memory.
  bool write_at(std::uint64_t offset, const void* data, std::uint64_t bytes) const;

  const std::string path_;
  int file_;
  std::uint64_t end_ = 0;  // of the entries
  std::vector<Entry> entries_;
};

}  // namespace turnout::core
