// The order of checks of mluOpMoeDispatchForward, written out by hand: a call with everything wrong, put
// right one thing at a time. The generated negative tests trust the signature; this test does not.
#include <gtest/gtest.h>

#include "c_stairs.h"

namespace turnout::test {
namespace {

enum { kGates, kIndices, kLocations, kInput, kDispatch, kTensors };
const char* const kNames[kTensors] = {"gates", "indices", "locations", "input", "dispatch"};
constexpr int kTooLargeHidden = 1 << 30, kTooManySamples = 18;

struct Call {
  bool has_handle = false;
  bool described[kTensors] = {};
  bool right_rank[kTensors] = {};
  bool right_dtype[kTensors] = {};
  int wrong_extent[kTensors][2] = {{1}, {1}, {1}, {1, 1}, {1, 1}};  // added to what is right
  bool strided[kTensors] = {true, true, true, true, true};
  bool has_data[kTensors] = {};
  bool negative[4] = {true, true, true, true};  // samples, capacity, hidden, num_experts
  int samples = kTooManySamples, capacity = 8, hidden = kTooLargeHidden, num_experts = 2;

  mluOpStatus_t run(mluOpHandle_t handle) const {
    static float gates[4], input[12], dispatch[48];
    static std::int32_t indices[4], locations[4];
    void* const memory[kTensors] = {gates, indices, locations, input, dispatch};
    mluOpTensorDescriptor_t desc[kTensors] = {};
    void* data[kTensors] = {};
    for (int i = 0; i < kTensors; ++i) {
      if (has_data[i]) data[i] = memory[i];
      if (!described[i]) continue;
      const bool is_matrix = i >= kInput, is_index = i == kIndices || i == kLocations;
      std::vector<std::int64_t> shape{(i == kDispatch ? num_experts * capacity : samples) +
                                      wrong_extent[i][0]};
      if (is_matrix) shape.push_back(hidden + wrong_extent[i][1]);
      if (!right_rank[i]) shape.push_back(1);
      std::vector<std::int64_t> stride(shape.size(), strided[i] ? 2 : 1);
      for (std::size_t d = shape.size() - 1; d-- > 0;) stride[d] = stride[d + 1] * shape[d + 1];
      const mluOpDataType_t dtype = is_index == right_dtype[i] ? MLUOP_DTYPE_INT32 : MLUOP_DTYPE_FLOAT;
      mluOpCreateTensorDescriptor(&desc[i]);
      mluOpSetTensorDescriptorEx_v2(desc[i], MLUOP_LAYOUT_ARRAY, dtype, static_cast<int>(shape.size()),
                                    shape.data(), stride.data());
    }
    const mluOpStatus_t status = mluOpMoeDispatchForward(
        has_handle ? handle : nullptr, desc[kGates], data[kGates], desc[kIndices], data[kIndices],
        desc[kLocations], data[kLocations], desc[kInput], data[kInput], negative[0] ? -1 : samples,
        negative[1] ? -1 : capacity, negative[2] ? -1 : hidden, negative[3] ? -1 : num_experts,
        desc[kDispatch], data[kDispatch]);
    for (mluOpTensorDescriptor_t one : desc)
      if (one != nullptr) mluOpDestroyTensorDescriptor(one);
    return status;
  }
};

TEST(CMoeDispatchOrder, IsTheContract) {
  Stairs<Call> stairs("mluOpMoeDispatchForward");
  const auto name = [](int i) { return std::string(kNames[i]); };

  stairs.bad("handle is NULL", [](Call& c) { c.has_handle = true; });
  for (int i = 0; i < kTensors; ++i)
    stairs.bad(name(i) + " is missing", [i](Call& c) { c.described[i] = true; });
  for (int i = 0; i < kTensors; ++i) stairs.bad(name(i) + " has ", [i](Call& c) { c.right_rank[i] = true; });
  // gates and dispatch are judged by input; while input is int32 both of them agree with it.
  for (int i : {kIndices, kLocations, kInput, kDispatch, kGates})
    stairs.bad(name(i) + " has dtype ", [i](Call& c) { c.right_dtype[i] = true; });
  const char* const scalars[] = {"samples", "capacity", "hidden", "num_experts"};
  for (int i = 0; i < 4; ++i)
    stairs.bad(std::string(scalars[i]) + " is -1", [i](Call& c) { c.negative[i] = false; });
  const int extents[][2] = {{kGates, 0},    {kIndices, 0}, {kLocations, 0}, {kInput, 0},
                            {kDispatch, 0}, {kInput, 1},   {kDispatch, 1}};
  for (const auto& [i, d] : extents)
    stairs.bad(name(i) + ".shape[" + std::to_string(d) + "]",
               [i = i, d = d](Call& c) { c.wrong_extent[i][d] = 0; });
  for (int i = 0; i < kTensors; ++i)
    stairs.unsupported(name(i) + " is strided", [i](Call& c) { c.strided[i] = false; });
  stairs.unsupported("input has 19327352832 elements", [](Call& c) { c.hidden = 0; });
  stairs.succeeds([](Call& c) { c.hidden = 3; });  // empty
  stairs.bad("samples is 18, expected at most num_experts * capacity = 16", [](Call& c) { c.samples = 4; });
  for (int i : {kIndices, kLocations, kInput, kDispatch, kGates})
    stairs.bad(name(i) + ".data is null", [i](Call& c) { c.has_data[i] = true; });
  stairs.succeeds();
  stairs.climb();
}

}  // namespace
}  // namespace turnout::test
