// .npy arrays in a zip archive. All sizes are written in the 64-bit form of zip, as NumPy itself does.
#include "runtime/npz.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "turnout/error.h"

namespace turnout::core {
namespace {

constexpr std::array<std::uint32_t, 256> kCrcTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0xEDB88320u : 0u);
    table[i] = value;
  }
  return table;
}();

std::uint32_t crc32(std::uint32_t crc, const void* data, std::uint64_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  crc = ~crc;
  for (std::uint64_t i = 0; i < bytes; ++i) crc = (crc >> 8) ^ kCrcTable[(crc ^ at[i]) & 0xFFu];
  return ~crc;
}

// Little-endian fields of a zip header.
class Fields {
 public:
  Fields& u16(std::uint64_t value) { return add(value, 2); }
  Fields& u32(std::uint64_t value) { return add(value, 4); }
  Fields& u64(std::uint64_t value) { return add(value, 8); }
  Fields& text(std::string_view value) {
    bytes_.append(value);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  Fields& add(std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) bytes_.push_back(static_cast<char>((value >> (8 * i)) & 0xFFu));
    return *this;
  }
  std::string bytes_;
};

constexpr std::uint64_t kVersion = 45;  // the first with 64-bit sizes
constexpr std::uint64_t kDate = 0x21;  // 1 January 1980, the first day of zip: files of equal calls are equal
constexpr std::uint64_t kIn64 = 0xFFFFFFFF;  // the size is in the 64-bit field

std::string local_header(const std::string& name, std::uint32_t crc, std::uint64_t size) {
  return Fields()
      .u32(0x04034B50)
      .u16(kVersion)
      .u16(0)  // flags
      .u16(0)  // stored
      .u16(0)  // time
      .u16(kDate)
      .u32(crc)
      .u32(kIn64)
      .u32(kIn64)
      .u16(name.size())
      .u16(20)
      .text(name)
      .u16(1)  // the field of 64-bit sizes
      .u16(16)
      .u64(size)
      .u64(size)
      .bytes();
}

std::string directory_entry(const std::string& name, std::uint32_t crc, std::uint64_t size,
                            std::uint64_t offset) {
  return Fields()
      .u32(0x02014B50)
      .u16(kVersion)
      .u16(kVersion)
      .u16(0)
      .u16(0)
      .u16(0)
      .u16(kDate)
      .u32(crc)
      .u32(kIn64)
      .u32(kIn64)
      .u16(name.size())
      .u16(28)
      .u16(0)  // comment
      .u16(0)  // disk
      .u16(0)  // attributes
      .u32(0)
      .u32(kIn64)
      .text(name)
      .u16(1)
      .u16(24)
      .u64(size)
      .u64(size)
      .u64(offset)
      .bytes();
}

std::string directory_end(std::uint64_t entries, std::uint64_t size, std::uint64_t offset) {
  return Fields()
      .u32(0x06064B50)  // the 64-bit end
      .u64(44)
      .u16(kVersion)
      .u16(kVersion)
      .u32(0)
      .u32(0)
      .u64(entries)
      .u64(entries)
      .u64(size)
      .u64(offset)
      .u32(0x07064B50)  // where that is
      .u32(0)
      .u64(offset + size)
      .u32(1)
      .u32(0x06054B50)  // the end
      .u16(0)
      .u16(0)
      .u16(std::min<std::uint64_t>(entries, 0xFFFF))
      .u16(std::min<std::uint64_t>(entries, 0xFFFF))
      .u32(kIn64)
      .u32(kIn64)
      .u16(0)
      .bytes();
}

// What NumPy calls the type. It has no bfloat16 and no 8-bit floats.
struct NumpyType {
  const char* name;
  bool is_stand_in;
};
constexpr NumpyType kTypes[kDTypeCount] = {{"<f4", false}, {"<f8", false}, {"<f2", false}, {"<u2", true},
                                           {"|i1", false}, {"|u1", false}, {"<i2", false}, {"<u2", false},
                                           {"<i4", false}, {"<u4", false}, {"<i8", false}, {"<u8", false},
                                           {"|b1", false}, {"|u1", true},  {"|u1", true},  {"|u1", true}};

// The header of a .npy array; its length is a multiple of 64.
std::string npy_header(const std::string& type, std::span<const std::int64_t> shape) {
  std::string extents;
  for (const std::int64_t extent : shape) extents += std::to_string(extent) + ",";
  std::string text = concat("{'descr': '", type, "', 'fortran_order': False, 'shape': (", extents, "), }");
  constexpr std::size_t kPrefix = 10;
  text.append((64 - (kPrefix + text.size() + 1) % 64) % 64, ' ');
  text.push_back('\n');
  return Fields().text("\x93NUMPY").u16(1).u16(text.size()).text(text).bytes();
}

// The elements of a strided array, one after the other.
void pack(const ConstTensor& array, int dim, const char* from, std::string& to) {
  const auto size = static_cast<std::size_t>(size_of(array.dtype));
  if (dim == array.rank) {
    to.append(from, size);
    return;
  }
  for (std::int64_t i = 0; i < array.shape[dim]; ++i)
    pack(array, dim + 1, from + i * array.stride[dim] * static_cast<std::int64_t>(size), to);
}

[[noreturn]] void fail(const std::string& path) {
  throw Error(ErrorCode::internal, concat("turnout: ", path, ": ", std::strerror(errno)));
}

}  // namespace

NpzFile::NpzFile(std::string path)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
  if (file_ < 0) fail(path_);
}
NpzFile::~NpzFile() { ::close(file_); }

bool NpzFile::write_at(std::uint64_t offset, const void* data, std::uint64_t bytes) const {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ::ssize_t written = ::pwrite(file_, at, bytes, static_cast<::off_t>(offset));
    if (written < 0) {
      if (errno == EINTR) continue;
      if (errno == EFAULT) return false;
      fail(path_);
    }
    at += written;
    offset += static_cast<std::uint64_t>(written);
    bytes -= static_cast<std::uint64_t>(written);
  }
  return true;
}

bool NpzFile::add_entry(std::string_view name, std::string_view head, const void* data, std::uint64_t bytes) {
  const std::string file_name = concat(name, ".npy");
  const std::uint64_t size = head.size() + bytes, offset = end_;
  const std::uint64_t start = offset + local_header(file_name, 0, size).size();
  // The kernel looks at the memory first: where it refuses to read, this function must not.
  if (!write_at(start + head.size(), data, bytes)) return false;
  const std::uint32_t crc = crc32(crc32(0, head.data(), head.size()), data, bytes);
  const std::string begin = local_header(file_name, crc, size) + std::string(head);
  write_at(offset, begin.data(), begin.size());
  entries_.push_back({file_name, crc, size, offset});
  end_ = start + size;
  return true;
}

bool NpzFile::add(std::string_view name, const ConstTensor& array) {
  const NumpyType type = kTypes[static_cast<int>(array.dtype)];
  const std::string full = type.is_stand_in ? concat(name, ".", name_of(array.dtype)) : std::string(name);
  const std::span shape(array.shape, static_cast<std::size_t>(array.rank));
  const std::string head = npy_header(type.name, shape);
  const Slot slot(array);
  const auto bytes = static_cast<std::uint64_t>(slot.elements() * size_of(array.dtype));
  if (slot.is_contiguous()) return add_entry(full, head, array.data, bytes);
  std::string packed;
  packed.reserve(bytes);
  pack(array, 0, static_cast<const char*>(array.data), packed);
  return add_entry(full, head, packed.data(), packed.size());
}

void NpzFile::add_integers(std::string_view name, std::span<const std::int64_t> values) {
  const std::int64_t shape[1] = {static_cast<std::int64_t>(values.size())};
  add_entry(name, npy_header("<i8", shape), values.data(), values.size_bytes());
}
void NpzFile::add_integer(std::string_view name, std::int64_t value) {
  add_entry(name, npy_header("<i8", {}), &value, sizeof(value));
}
void NpzFile::add_text(std::string_view name, std::string_view text) {
  if (text.empty()) return;
  add_entry(name, npy_header(concat("|S", static_cast<std::int64_t>(text.size())), {}), text.data(),
            text.size());
}

void NpzFile::finish() {
  std::string directory;
  for (const Entry& one : entries_) directory += directory_entry(one.name, one.crc, one.size, one.offset);
  const std::string all = directory + directory_end(entries_.size(), directory.size(), end_);
  write_at(end_, all.data(), all.size());
  if (::ftruncate(file_, static_cast<::off_t>(end_ + all.size())) != 0) fail(path_);
}

}  // namespace turnout::core
