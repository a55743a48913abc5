// Writes .npy files from memory that may be unreadable.
#include "runtime/npy.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "core/check.h"
#include "turnout/error.h"

namespace turnout::core {
namespace {

constexpr int kPartsPerWrite = 256;  // Linux accepts 1024

class File {
 public:
  explicit File(const std::string& path)
      : path_(path), file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
    if (file_ < 0) fail();
  }
  ~File() { ::close(file_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void write(std::string_view text) const {
    iovec part{const_cast<char*>(text.data()), text.size()};
    write(&part, 1);
  }
  // Modifies `parts`. Returns false if memory cannot be read.
  bool write(iovec* parts, int count) const {
    while (count > 0) {
      const ::ssize_t result = ::writev(file_, parts, count);
      if (result < 0) {
        if (errno == EINTR) continue;
        if (errno == EFAULT) return false;
        fail();
      }
      auto written = static_cast<std::size_t>(result);
      for (; count > 0 && written >= parts->iov_len; --count, ++parts) written -= parts->iov_len;
      if (count == 0) break;
      parts->iov_base = static_cast<char*>(parts->iov_base) + written;
      parts->iov_len -= written;
    }
    return true;
  }

 private:
  [[noreturn]] void fail() const {
    throw Error(ErrorCode::internal, concat("turnout: ", path_, ": ", std::strerror(errno)));
  }

  const std::string& path_;
  const int file_;
};

constexpr const char* kNumpyTypes[kDTypeCount] = {"<f4", "<f8", "<f2", "<u2", "|i1", "|u1", "<i2", "<u2",
                                                  "<i4", "<u4", "<i8", "<u8", "|b1", "|u1", "|u1", "|u1"};

std::string npy_header(const ConstTensor& array) {
  constexpr std::string_view kMagic("\x93NUMPY\x01\x00", 8);
  constexpr std::size_t kAlignment = 64, kLengthBytes = 2;
  std::string extents;
  for (int d = 0; d < array.rank; ++d) extents += std::to_string(array.shape[d]) + ",";
  std::string text = concat("{'descr': '", kNumpyTypes[static_cast<int>(array.dtype)],
                            "', 'fortran_order': False, 'shape': (", extents, "), }");
  while ((kMagic.size() + kLengthBytes + text.size() + 1) % kAlignment != 0) text += ' ';
  text += '\n';
  const char length[kLengthBytes] = {static_cast<char>(text.size() & 0xFF),
                                     static_cast<char>(text.size() >> 8)};
  return concat(kMagic, std::string_view(length, kLengthBytes), text);
}

bool write_elements(const File& file, const ConstTensor& array) {
  const std::int64_t elements = Slot(array).elements();
  if (elements == 0) return true;
  // The innermost dimensions that are contiguous form one run of memory.
  int outer = array.rank;
  std::int64_t run = 1;
  for (; outer > 0; --outer) {
    if (array.shape[outer - 1] != 1 && array.stride[outer - 1] != run) break;
    run *= array.shape[outer - 1];
  }
  const std::int64_t size = size_of(array.dtype);
  iovec parts[kPartsPerWrite];
  int count = 0;
  for (std::int64_t i = 0; i < elements / run; ++i) {
    // Unsigned: strides of an invalid tensor may overflow.
    std::uint64_t offset = 0;
    std::int64_t rest = i;
    for (int d = outer - 1; d >= 0; rest /= array.shape[d--])
      offset +=
          static_cast<std::uint64_t>(rest % array.shape[d]) * static_cast<std::uint64_t>(array.stride[d]);
    const std::uint64_t address =
        reinterpret_cast<std::uintptr_t>(array.data) + offset * static_cast<std::uint64_t>(size);
    parts[count++] = {std::bit_cast<void*>(address), static_cast<std::size_t>(run * size)};
    if (count < kPartsPerWrite && i + 1 < elements / run) continue;
    if (!file.write(parts, count)) return false;
    count = 0;
  }
  return true;
}

}  // namespace

bool write_npy(const std::string& path, const ConstTensor& array) {
  const File file(path);
  file.write(npy_header(array));
  if (write_elements(file, array)) return true;
  ::unlink(path.c_str());
  return false;
}

void write_text(const std::string& path, std::string_view text) { File(path).write(text); }

}  // namespace turnout::core
