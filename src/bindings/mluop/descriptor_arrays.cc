// Groups of tensor descriptors, and tensor sets.
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "bindings/mluop/call.h"

struct mluOpTensorSetStruct {
  std::vector<int> shape;
  std::vector<mluOpTensorStruct> members;  // row-major; never resized, because clients hold pointers to them
};

namespace turnout::bindings {
namespace {

// SUCCESS if the group has descriptors, and a pointer to each.
mluOpStatus_t check_group(const char* function, mluOpTensorDescriptor_t* const* group, int count) {
  if (group == nullptr) return refuse_null(function, "group_desc");
  if (count <= 0) return refuse(function, "desc_num is %d, expected 1 or more", count);
  for (int i = 0; i < count; ++i)
    if (group[i] == nullptr) return refuse(function, "group_desc[%d] is NULL", i);
  return MLUOP_STATUS_SUCCESS;
}

mluOpStatus_t delete_group(const char* function, mluOpTensorDescriptor_t* const* group, int count) {
  for (int i = 0; i < count; ++i)
    if (*group[i] == nullptr) return refuse(function, "*group_desc[%d] is NULL", i);
  for (int i = 0; i < count; ++i) delete *group[i];
  return MLUOP_STATUS_SUCCESS;
}

// SUCCESS with the position of a member of the set.
mluOpStatus_t find_member(const char* function, const mluOpTensorSetStruct* set, int rank, const int* index,
                          std::size_t& position) {
  if (set == nullptr) return refuse_null(function, "tensorSetDesc");
  const auto dims = static_cast<int>(set->shape.size());
  if (rank != dims) return refuse(function, "setDimNb is %d, expected %d", rank, dims);
  if (index == nullptr && dims > 0) return refuse_null(function, "tensorIndex");
  position = 0;
  for (int d = 0; d < dims; ++d) {
    const int extent = set->shape[static_cast<std::size_t>(d)];
    if (index[d] < 0 || index[d] >= extent)
      return refuse(function, "tensorIndex[%d] is %d, expected 0 .. %d", d, index[d], extent - 1);
    position = position * static_cast<std::size_t>(extent) + static_cast<std::size_t>(index[d]);
  }
  return MLUOP_STATUS_SUCCESS;
}

// The bytes of the first `count` members.
std::size_t bytes_before(const mluOpTensorSetStruct& set, std::size_t count) {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) bytes += bytes_of(set.members[i]);
  return bytes;
}

}  // namespace
}  // namespace turnout::bindings

using namespace turnout::bindings;

mluOpStatus_t mluOpCreateGroupTensorDescriptors(mluOpTensorDescriptor_t* group_desc[], const int desc_num) {
  if (const mluOpStatus_t bad = check_group(__func__, group_desc, desc_num)) return bad;
  int made = 0;
  try {
    for (; made < desc_num; ++made) *group_desc[made] = new mluOpTensorStruct;
    return succeed();
  } catch (...) {
    delete_group(__func__, group_desc, made);
    return fail_as_thrown();
  }
}

mluOpStatus_t mluOpSetGroupTensorDescriptors(mluOpTensorDescriptor_t* group_desc[],
                                             const mluOpTensorLayout_t group_layout[],
                                             const mluOpDataType_t group_dtype[], const int group_dimNb[],
                                             const int group_dimSize[], const int desc_num) {
  if (group_desc == nullptr) return refuse_null(__func__, "group_desc");
  if (group_layout == nullptr) return refuse_null(__func__, "group_layout");
  if (group_dtype == nullptr) return refuse_null(__func__, "group_dtype");
  if (group_dimNb == nullptr) return refuse_null(__func__, "group_dimNb");
  if (group_dimSize == nullptr) return refuse_null(__func__, "group_dimSize");
  if (const mluOpStatus_t bad = check_group(__func__, group_desc, desc_num)) return bad;
  const int* shape = group_dimSize;
  for (int i = 0; i < desc_num; ++i) {
    mluOpSetTensorDescriptor(*group_desc[i], group_layout[i], group_dtype[i], group_dimNb[i], shape);
    if (group_dimNb[i] > 0) shape += group_dimNb[i];
  }
  return succeed();
}

mluOpStatus_t mluOpDestroyGroupTensorDescriptors(mluOpTensorDescriptor_t* group_desc[], const int desc_num) {
  if (const mluOpStatus_t bad = check_group(__func__, group_desc, desc_num)) return bad;
  return delete_group(__func__, group_desc, desc_num);
}

mluOpStatus_t mluOpCreateTensorSetDescriptor(mluOpTensorSetDescriptor_t* tensorSetDesc, const int setDimNb,
                                             const int setDimSize[]) {
  if (tensorSetDesc == nullptr) return refuse_null(__func__, "tensorSetDesc");
  if (setDimNb < 0) return refuse(__func__, "setDimNb is %d, expected 0 or more", setDimNb);
  if (setDimSize == nullptr && setDimNb > 0) return refuse_null(__func__, "setDimSize");
  std::int64_t count = 1;
  for (int d = 0; d < setDimNb; ++d) {
    if (setDimSize[d] < 0)
      return refuse(__func__, "setDimSize[%d] is %d, expected 0 or more", d, setDimSize[d]);
    count *= setDimSize[d];
    if (count > std::numeric_limits<int>::max())
      return refuse(__func__, "setDimSize[%d] is %d, expected fewer than 2^31 members", d, setDimSize[d]);
  }
  try {
    *tensorSetDesc = new mluOpTensorSetStruct{
        {setDimSize, setDimSize + setDimNb}, std::vector<mluOpTensorStruct>(static_cast<std::size_t>(count))};
    return succeed();
  } catch (...) {
    return fail_as_thrown();
  }
}

mluOpStatus_t mluOpGetTensorSetDescriptor(mluOpTensorSetDescriptor_t tensorSetDesc, int* setDimNb,
                                          int setDimSize[]) {
  if (tensorSetDesc == nullptr) return refuse_null(__func__, "tensorSetDesc");
  if (setDimNb == nullptr) return refuse_null(__func__, "setDimNb");
  if (setDimSize == nullptr) return refuse_null(__func__, "setDimSize");
  *setDimNb = static_cast<int>(tensorSetDesc->shape.size());
  for (const int extent : tensorSetDesc->shape) *setDimSize++ = extent;
  return succeed();
}

mluOpStatus_t mluOpDestroyTensorSetDescriptor(mluOpTensorSetDescriptor_t tensorSetDesc) {
  if (tensorSetDesc == nullptr) return refuse_null(__func__, "tensorSetDesc");
  delete tensorSetDesc;
  return MLUOP_STATUS_SUCCESS;
}

mluOpStatus_t mluOpInitTensorSetMemberDescriptor(mluOpTensorSetDescriptor_t tensorSetDesc, const int setDimNb,
                                                 const int tensorIndex[], mluOpTensorLayout_t layout,
                                                 mluOpDataType_t dtype, const int dimNb,
                                                 const int dimSize[]) {
  std::size_t at = 0;
  if (const mluOpStatus_t bad = find_member(__func__, tensorSetDesc, setDimNb, tensorIndex, at)) return bad;
  return mluOpSetTensorDescriptor(&tensorSetDesc->members[at], layout, dtype, dimNb, dimSize);
}

mluOpStatus_t mluOpInitTensorSetMemberDescriptorPositionAndScale(mluOpTensorSetDescriptor_t tensorSetDesc,
                                                                 const int setDimNb, const int tensorIndex[],
                                                                 const int position, const float scale) {
  std::size_t at = 0;
  if (const mluOpStatus_t bad = find_member(__func__, tensorSetDesc, setDimNb, tensorIndex, at)) return bad;
  return mluOpSetTensorDescriptorPositionAndScale(&tensorSetDesc->members[at], position, scale);
}

mluOpStatus_t mluOpGetTensorSetDescriptorSize(mluOpTensorSetDescriptor_t tensorSetDesc, int* sizeInBytes) {
  if (tensorSetDesc == nullptr) return refuse_null(__func__, "tensorSetDesc");
  if (sizeInBytes == nullptr) return refuse_null(__func__, "sizeInBytes");
  *sizeInBytes = static_cast<int>(bytes_before(*tensorSetDesc, tensorSetDesc->members.size()));
  return succeed();
}

mluOpStatus_t mluOpGetTensorAndDataFromTensorSet(mluOpTensorSetDescriptor_t tensorSetDesc, const int setDimNb,
                                                 const int tensorIndex[], void* data,
                                                 mluOpTensorDescriptor_t* tensorDesc,
                                                 void** dataAddrInDevice) {
  std::size_t at = 0;
  if (const mluOpStatus_t bad = find_member(__func__, tensorSetDesc, setDimNb, tensorIndex, at)) return bad;
  if (tensorDesc == nullptr) return refuse_null(__func__, "tensorDesc");
  if (dataAddrInDevice == nullptr) return refuse_null(__func__, "dataAddrInDevice");
  *tensorDesc = &tensorSetDesc->members[at];
  // As numbers: `data` may be NULL for a caller that only asks for the offset.
  *dataAddrInDevice =
      std::bit_cast<void*>(std::bit_cast<std::uintptr_t>(data) + bytes_before(*tensorSetDesc, at));
  return succeed();
}
