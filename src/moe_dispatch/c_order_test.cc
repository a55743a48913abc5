// The order of checks of this family's C functions, written out by hand: every argument of a call is wrong,
// and they are corrected one at a time. The generated negative tests trust the signature; this test does not.
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
  int wrong_extent[kTensors][2] = {{1}, {1}, {1}, {1, 1}, {1, 1}};  // added to the correct extents
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
  // gates and dispatch must have the dtype of input; while input is int32, both match it.
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
  stairs.bad("samples is 18, expected at most 16 = num_experts * capacity", [](Call& c) { c.samples = 4; });
  for (int i : {kIndices, kLocations, kInput, kDispatch, kGates})
    stairs.bad(name(i) + ".data is null", [i](Call& c) { c.has_data[i] = true; });
  stairs.succeeds();
  stairs.climb();
}

// The same for the two gradients, which take other tensors in another order.
struct GradientCall {
  static constexpr int kCount = 5;
  enum class Kind { data, gate } kind = Kind::data;
  bool has_handle = false;
  bool described[kCount] = {};
  bool right_rank[kCount] = {};
  bool right_dtype[kCount] = {};
  int wrong_extent[kCount][2] = {{1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
  bool strided[kCount] = {true, true, true, true, true};
  bool has_data[kCount] = {};
  bool has_workspace = false;
  bool negative[4] = {true, true, true, true};
  int samples = 4, capacity = 8, hidden = kTooLargeHidden, num_experts = 2;

  // gates indices locations dispatch grad_input, or indices locations input dispatch grad_gates.
  bool is_index(int i) const { return kind == Kind::data ? i == 1 || i == 2 : i < 2; }
  bool is_matrix(int i) const { return kind == Kind::data ? i >= 3 : i == 2 || i == 3; }
  bool is_buffer(int i) const { return i == 3; }

  mluOpStatus_t run(mluOpHandle_t handle) const {
    static float memory[kCount][48];
    mluOpTensorDescriptor_t desc[kCount] = {};
    void* data[kCount] = {};
    for (int i = 0; i < kCount; ++i) {
      if (has_data[i]) data[i] = memory[i];
      if (!described[i]) continue;
      std::vector<std::int64_t> shape{(is_buffer(i) ? num_experts * capacity : samples) + wrong_extent[i][0]};
      if (is_matrix(i)) shape.push_back(hidden + wrong_extent[i][1]);
      if (!right_rank[i]) shape.push_back(1);
      std::vector<std::int64_t> stride(shape.size(), strided[i] ? 2 : 1);
      for (std::size_t d = shape.size() - 1; d-- > 0;) stride[d] = stride[d + 1] * shape[d + 1];
      const mluOpDataType_t dtype = is_index(i) == right_dtype[i] ? MLUOP_DTYPE_INT32 : MLUOP_DTYPE_FLOAT;
      mluOpCreateTensorDescriptor(&desc[i]);
      mluOpSetTensorDescriptorEx_v2(desc[i], MLUOP_LAYOUT_ARRAY, dtype, static_cast<int>(shape.size()),
                                    shape.data(), stride.data());
    }
    const int n = negative[0] ? -3 : samples, c = negative[1] ? -3 : capacity, h = negative[2] ? -3 : hidden,
              e = negative[3] ? -3 : num_experts;
    mluOpHandle_t with = has_handle ? handle : nullptr;
    static char workspace[8];
    const mluOpStatus_t status =
        kind == Kind::data
            ? mluOpMoeDispatchBackwardData(with, desc[0], data[0], desc[1], data[1], desc[2], data[2],
                                           desc[3], data[3], n, c, h, e, desc[4], data[4])
            : mluOpMoeDispatchBackwardGate(with, desc[0], data[0], desc[1], data[1], desc[2], data[2],
                                           desc[3], data[3], n, c, h, e, has_workspace ? workspace : nullptr,
                                           8, desc[4], data[4]);
    for (mluOpTensorDescriptor_t one : desc)
      if (one != nullptr) mluOpDestroyTensorDescriptor(one);
    return status;
  }
};

const char* const kScalarNames[] = {"samples", "capacity", "hidden", "num_experts"};

TEST(CMoeDispatchOrder, BackwardDataIsTheContract) {
  const char* const names[] = {"gates", "indices", "locations", "dispatch", "grad_input"};
  const auto name = [&](int i) { return std::string(names[i]); };
  Stairs<GradientCall> stairs("mluOpMoeDispatchBackwardData");
  stairs.bad("handle is NULL", [](GradientCall& c) { c.has_handle = true; });
  for (int i = 0; i < 5; ++i)
    stairs.bad(name(i) + " is missing", [i](GradientCall& c) { c.described[i] = true; });
  for (int i = 0; i < 5; ++i) stairs.bad(name(i) + " has ", [i](GradientCall& c) { c.right_rank[i] = true; });
  // Shapes are compared with the scalars as given; a shape never matches a single negative scalar.
  stairs.bad("gates.shape[0]", [](GradientCall& c) {
    c.wrong_extent[0][0] = 0;
    c.negative[0] = false;
  });
  stairs.bad("indices.shape[0]", [](GradientCall& c) { c.wrong_extent[1][0] = 0; });
  stairs.bad("locations.shape[0]", [](GradientCall& c) { c.wrong_extent[2][0] = 0; });
  // -3 experts of -3 slots make 9 rows.
  stairs.bad("dispatch.shape[0]", [](GradientCall& c) { c.wrong_extent[3][0] = 9 - 2 * 8; });
  stairs.bad("dispatch.shape[1]", [](GradientCall& c) {
    c.wrong_extent[3][1] = 0;
    c.negative[2] = false;
  });
  stairs.bad("grad_input.shape[0]", [](GradientCall& c) { c.wrong_extent[4][0] = 0; });
  stairs.bad("grad_input.shape[1]", [](GradientCall& c) { c.wrong_extent[4][1] = 0; });
  for (int i = 0; i < 5; ++i)
    stairs.bad(name(i) + " has dtype ", [i](GradientCall& c) { c.right_dtype[i] = true; });
  stairs.bad("capacity is -3", [](GradientCall& c) {
    c.negative[1] = c.negative[3] = false;
    c.wrong_extent[3][0] = 0;
  });
  for (int i = 0; i < 5; ++i)
    stairs.unsupported(name(i) + " is strided", [i](GradientCall& c) { c.strided[i] = false; });
  stairs.unsupported("dispatch has 17179869184 elements", [](GradientCall& c) { c.hidden = 0; });
  stairs.succeeds([](GradientCall& c) {  // no columns
    c.hidden = 3;
    c.capacity = 0;
  });
  stairs.bad("grad_input.data is null", [](GradientCall& c) { c.has_data[4] = true; });
  stairs.succeeds([](GradientCall& c) { c.capacity = 8; });  // no slots: only the gradient needs memory
  for (int i = 0; i < 4; ++i)
    stairs.bad(name(i) + ".data is null", [i](GradientCall& c) { c.has_data[i] = true; });
  stairs.succeeds();
  stairs.climb();
}

struct GateCall : GradientCall {
  GateCall() { kind = Kind::gate; }
};

TEST(CMoeDispatchOrder, BackwardGateIsTheContract) {
  const char* const names[] = {"indices", "locations", "input", "dispatch", "grad_gates"};
  const auto name = [&](int i) { return std::string(names[i]); };
  Stairs<GateCall> stairs("mluOpMoeDispatchBackwardGate");
  stairs.bad("handle is NULL", [](GateCall& c) { c.has_handle = true; });
  for (int i = 0; i < 5; ++i)
    stairs.bad(name(i) + " is missing", [i](GateCall& c) { c.described[i] = true; });
  for (int i = 0; i < 5; ++i) stairs.bad(name(i) + " has ", [i](GateCall& c) { c.right_rank[i] = true; });
  for (int i = 0; i < 5; ++i)
    stairs.bad(name(i) + " has dtype ", [i](GateCall& c) { c.right_dtype[i] = true; });
  for (int i = 0; i < 4; ++i)
    stairs.bad(std::string(kScalarNames[i]) + " is -3", [i](GateCall& c) { c.negative[i] = false; });
  const int extents[][2] = {{0, 0}, {1, 0}, {2, 0}, {4, 0}, {3, 0}, {2, 1}, {3, 1}};
  for (const auto& [i, d] : extents)
    stairs.bad(name(i) + ".shape[" + std::to_string(d) + "]",
               [i = i, d = d](GateCall& c) { c.wrong_extent[i][d] = 0; });
  for (int i = 0; i < 5; ++i)
    stairs.unsupported(name(i) + " is strided", [i](GateCall& c) { c.strided[i] = false; });
  stairs.unsupported("input has 4294967296 elements", [](GateCall& c) { c.hidden = 0; });
  stairs.bad("grad_gates.data is null", [](GateCall& c) { c.has_data[4] = true; });
  stairs.succeeds([](GateCall& c) { c.hidden = 3; });  // no columns: only the gradient needs memory
  stairs.bad("workspace is NULL and workspace_size is 8", [](GateCall& c) { c.has_workspace = true; });
  for (int i = 0; i < 4; ++i)
    stairs.bad(name(i) + ".data is null", [i](GateCall& c) { c.has_data[i] = true; });
  stairs.succeeds();
  stairs.climb();
}

}  // namespace
}  // namespace turnout::test
