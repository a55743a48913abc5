// Tensors of the aclnn interface.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <utility>

#include "bindings/aclnn/executor.h"
#include "bindings/aclnn/status.h"
#include "core/dtypes.h"
#include "core/saturate.h"

using namespace turnout::core;
using namespace turnout::bindings::aclnn;
using turnout::DType;

namespace {

DType dtype_of_acl(aclDataType type) {
  static constexpr std::pair<aclDataType, DType> kTypes[] = {{ACL_FLOAT, DType::f32},
                                                             {ACL_FLOAT16, DType::f16},
                                                             {ACL_BF16, DType::bf16},
                                                             {ACL_DOUBLE, DType::f64},
                                                             {ACL_INT8, DType::i8},
                                                             {ACL_UINT8, DType::u8},
                                                             {ACL_INT16, DType::i16},
                                                             {ACL_UINT16, DType::u16},
                                                             {ACL_INT32, DType::i32},
                                                             {ACL_UINT32, DType::u32},
                                                             {ACL_INT64, DType::i64},
                                                             {ACL_UINT64, DType::u64},
                                                             {ACL_BOOL, DType::boolean},
                                                             {ACL_FLOAT8_E4M3FN, DType::f8_e4m3fn},
                                                             {ACL_FLOAT8_E5M2, DType::f8_e5m2},
                                                             {ACL_FLOAT8_E8M0, DType::f8_e8m0}};
  for (const auto& [acl, dtype] : kTypes)
    if (acl == type) return dtype;
  return kForeign;
}

bool is_float4(aclDataType type) { return type == ACL_FLOAT4_E2M1 || type == ACL_FLOAT4_E1M2; }

// The elements of `size` bytes between `data` and the end of the address space.
std::int64_t elements_behind(const void* data, std::int64_t size) {
  const std::uintptr_t bytes = ~std::bit_cast<std::uintptr_t>(data);
  return static_cast<std::int64_t>(std::min<std::uintptr_t>(bytes, kSizeMax)) / size;
}

// The end of the elements that a view may touch, counted from tensor_data; saturates.
std::int64_t end_of(const turnout::Tensor& view, std::int64_t offset) {
  std::int64_t last = offset;
  for (int d = 0; d < view.rank; ++d) {
    if (view.shape[d] == 0) return 0;
    last = saturating_sum(last, saturating_product(view.shape[d] - 1, view.stride[d]));
  }
  return saturating_sum(last, 1);
}

// Turns a view of FLOAT4, which has two elements per byte, into a view of bytes. Returns why this is
// impossible, or "".
std::string make_view_of_bytes(turnout::Tensor& view, std::int64_t& offset) {
  constexpr std::string_view kWhy = ", because two elements of FLOAT4 share a byte";
  if (view.rank == 0) return concat("view_dims_num is 0, expected 1 or more", kWhy);
  const int last = view.rank - 1;
  const std::string at = concat("[", std::int64_t{last}, "] is ");
  if (view.shape[last] % 2 != 0)
    return concat("view_dims", at, view.shape[last], ", expected an even number", kWhy);
  if (view.shape[last] > 0 && view.stride[last] != 1)
    return concat("stride", at, view.stride[last], ", expected 1", kWhy);
  for (int d = 0; d < last; ++d) {
    if (view.shape[d] > 1 && view.stride[d] % 2 != 0)
      return concat("stride[", std::int64_t{d}, "] is ", view.stride[d], ", expected an even number", kWhy);
    view.stride[d] /= 2;
  }
  if (offset % 2 != 0) return concat("offset is ", offset, ", expected an even number", kWhy);
  view.shape[last] /= 2;
  offset /= 2;
  return {};
}

}  // namespace

bool turnout::bindings::aclnn::is_type_of_bytes(aclDataType type) {
  return type == ACL_HIFLOAT8 || is_float4(type);
}

aclTensor* aclCreateTensor(const int64_t* view_dims, uint64_t view_dims_num, aclDataType data_type,
                           const int64_t* stride, int64_t offset, aclFormat, const int64_t* storage_dims,
                           uint64_t storage_dims_num, void* tensor_data) {
  const auto refuse_tensor = [](aclnnStatus status, const std::string& what) -> aclTensor* {
    refuse(status, concat("aclCreateTensor: ", what));
    return nullptr;
  };
  try {
    if (view_dims == nullptr && view_dims_num > 0)
      return refuse_tensor(ACLNN_ERR_PARAM_NULLPTR, "view_dims is NULL");
    if (storage_dims == nullptr && storage_dims_num > 0)
      return refuse_tensor(ACLNN_ERR_PARAM_NULLPTR, "storage_dims is NULL");
    if (view_dims_num > turnout::kMaxRank)
      return refuse_tensor(ACLNN_ERR_PARAM_INVALID,
                           concat("view_dims_num is ", std::to_string(view_dims_num), ", expected at most ",
                                  std::int64_t{turnout::kMaxRank}));
    const DType dtype = dtype_of_acl(data_type);
    turnout::Tensor view(tensor_data, dtype, view_dims, static_cast<int>(view_dims_num));
    for (int d = 0; d < view.rank; ++d) {
      const std::string at = concat("[", std::int64_t{d}, "] is ");
      if (view.shape[d] < 0)
        return refuse_tensor(ACLNN_ERR_PARAM_INVALID,
                             concat("view_dims", at, view.shape[d], ", expected at least 0"));
      if (stride != nullptr) view.stride[d] = stride[d];
      if (view.stride[d] < 0)
        return refuse_tensor(ACLNN_ERR_PARAM_INVALID,
                             concat("stride", at, view.stride[d], ", expected at least 0"));
    }
    if (offset < 0)
      return refuse_tensor(ACLNN_ERR_PARAM_INVALID, concat("offset is ", offset, ", expected at least 0"));
    if (storage_dims_num > 0) {
      const std::int64_t end = end_of(view, offset);
      std::int64_t storage = 1;
      for (uint64_t d = 0; d < storage_dims_num; ++d) storage = saturating_product(storage, storage_dims[d]);
      if (end > storage)
        return refuse_tensor(ACLNN_ERR_PARAM_INVALID,
                             concat("the view ends at element ", end, ", expected at most ", storage,
                                    ", the product of storage_dims"));
    }
    if (is_float4(data_type))
      if (const std::string fault = make_view_of_bytes(view, offset); !fault.empty())
        return refuse_tensor(ACLNN_ERR_PARAM_INVALID, fault);
    const std::int64_t size = is_type_of_bytes(data_type) ? 1 : turnout::size_of(dtype);
    if (tensor_data != nullptr && size > 0) {
      const std::int64_t room = elements_behind(tensor_data, size);
      const std::int64_t last = std::max(end_of(view, offset), offset);
      if (last > room)
        return refuse_tensor(ACLNN_ERR_PARAM_INVALID,
                             concat("the view ends at element ", last, ", expected at most ", room,
                                    ", the end of the address space"));
      view.data = static_cast<char*>(tensor_data) + offset * size;
    }
    auto* tensor = new aclTensor{view, data_type};
    succeed();
    return tensor;
  } catch (...) {
    fail_as_thrown();
    return nullptr;
  }
}

aclnnStatus aclDestroyTensor(const aclTensor* tensor) {
  if (tensor == nullptr) return refuse(ACLNN_ERR_PARAM_NULLPTR, "aclDestroyTensor: tensor is NULL");
  delete tensor;
  return succeed();
}
