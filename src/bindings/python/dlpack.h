// The DLPack binary interface, version 1: the structures that array libraries exchange.
#pragma once

#include <cstdint>

namespace turnout::core::dlpack {

inline constexpr std::uint32_t kMajor = 1;
inline constexpr std::uint64_t kReadOnly = 1;  // a bit of ManagedTensorVersioned::flags

enum DeviceType : std::int32_t { kCpu = 1, kCuda = 2, kCudaHost = 3, kRocmHost = 11 };

enum TypeCode : std::uint8_t {
  kInt = 0,
  kUInt = 1,
  kFloat = 2,
  kBfloat = 4,
  kBool = 6,
  kFloat8E4m3fn = 10,
  kFloat8E5m2 = 12,
  kFloat8E8m0fnu = 14,
};

struct Version {
  std::uint32_t major, minor;
};

struct Device {
  std::int32_t type, id;
};

struct DataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};

struct DLTensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; nullptr from old producers: contiguous
  std::uint64_t byte_offset;
};

struct ManagedTensor {  // capsule "dltensor"
  DLTensor tensor;
  void* context;
  void (*deleter)(ManagedTensor* self);
};

struct ManagedTensorVersioned {  // capsule "dltensor_versioned"
  Version version;
  void* context;
  void (*deleter)(ManagedTensorVersioned* self);
  std::uint64_t flags;
  DLTensor tensor;
};

// The capsule "dlpack_exchange_api", which a type has as __dlpack_c_exchange_api__. Functions return 0, or -1
// with a Python exception set.
struct ExchangeApi {
  Version version;
  ExchangeApi* previous;  // of an older major version, or nullptr
  int (*allocate)(DLTensor* prototype, ManagedTensorVersioned** out, void* error_context,
                  void (*set_error)(void* error_context, const char* kind, const char* message));
  int (*managed_from_object)(void* object, ManagedTensorVersioned** out);
  int (*object_from_managed)(ManagedTensorVersioned* tensor, void** out_object);
  int (*tensor_from_object)(void* object, DLTensor* out);  // borrows; may be nullptr
  int (*current_stream)(std::int32_t device_type, std::int32_t device_id, void** out_stream);
};

}  // namespace turnout::core::dlpack
