// One entry per operator of the C interface.
#include "c_registry.h"

namespace turnout::core {

// Beside the functions they belong to, in <family>/c_api.cc.
extern const Signature kMluOpMoeDispatchForward;

namespace {

int as_int(const ScalarValue& scalar) { return static_cast<int>(scalar.value); }

}  // namespace

std::span<const COperator> c_operators() {
  static constexpr COperator kOperators[] = {
      {&kMluOpMoeDispatchForward,
       [](mluOpHandle_t handle, const mluOpTensorDescriptor_t* d, void* const* data, const ScalarValue* s) {
         return mluOpMoeDispatchForward(handle, d[0], data[0], d[1], data[1], d[2], data[2], d[3], data[3],
                                        as_int(s[0]), as_int(s[1]), as_int(s[2]), as_int(s[3]), d[4],
                                        data[4]);
       },
       "samples=5 capacity=3 hidden=7 num_experts=2"},
  };
  return kOperators;
}

}  // namespace turnout::core
