// Python bindings of this family.
#include "doors/python/call.h"

#include <algorithm>

#include "core/check.h"
#include "mutual_information/mutual_information.h"
#include "mutual_information/signature.h"

namespace turnout::families::mutual_information {

using namespace core;
using namespace doors;
namespace {

constexpr PythonFunction kForward{"mutual_information_forward", kMutualInformationForward, "outside="};
constexpr PythonFunction kBackward{"mutual_information_backward", kMutualInformationBackward};
constexpr PythonFunction kForwardBackward{"mutual_information_forward_backward",
                                          kMutualInformationForwardBackward};

const ConstTensor* pointer(const std::optional<ConstTensor>& tensor) { return tensor ? &*tensor : nullptr; }

std::int64_t one_more(std::int64_t extent) { return std::min(extent, kSizeMax - 1) + 1; }

nb::object forward(nb::handle px, nb::handle py, nb::handle boundary, nb::handle out, bool torch_team) {
  PythonCall call(kForward, torch_team);
  const ConstTensor x = call.in(px);
  const ConstTensor y = call.in(py);
  const std::optional<ConstTensor> box = call.optional_in(boundary);
  const auto to = call.outs(out);
  const Tensor p = call.out(to[0], {x.shape[0], one_more(x.shape[1]), one_more(y.shape[2])});
  const Tensor ans = call.out(to[1], {x.shape[0]});
  // A p that is made here has no content to keep.
  const Outside outside = to[0].is_none() ? Outside::minus_infinity : Outside::keep;
  call.run(
      [&](const Frame& frame) { mutual_information_forward(frame, x, y, pointer(box), p, ans, outside); });
  return call.result();
}

nb::object backward(nb::handle px, nb::handle py, nb::handle p, nb::handle ans_grad, nb::handle boundary,
                    nb::handle overwrite_ans_grad, nb::handle out, bool torch_team) {
  PythonCall call(kBackward, torch_team);
  const ConstTensor x = call.in(px);
  const ConstTensor y = call.in(py);
  const std::optional<ConstTensor> box = call.optional_in(boundary);
  const ConstTensor lattice = call.in(p);
  const bool overwrites = call.flag(overwrite_ans_grad, "overwrite_ans_grad");
  const Tensor grad = call.inout(ans_grad, overwrites);
  const auto to = call.outs(out);
  const Tensor x_grad = call.out(to[0], x);
  const Tensor y_grad = call.out(to[1], y);
  call.run([&](const Frame& frame) {
    mutual_information_backward(frame, x, y, pointer(box), lattice, grad, x_grad, y_grad, overwrites);
  });
  return call.result();
}

nb::object forward_backward(nb::handle px, nb::handle py, nb::handle boundary, nb::handle out,
                            bool torch_team) {
  PythonCall call(kForwardBackward, torch_team);
  const ConstTensor x = call.in(px);
  const ConstTensor y = call.in(py);
  const std::optional<ConstTensor> box = call.optional_in(boundary);
  const auto to = call.outs(out);
  const Tensor ans = call.out(to[0], {x.shape[0]});
  const Tensor x_grad = call.out(to[1], x);
  const Tensor y_grad = call.out(to[2], y);
  call.run([&](const Frame& frame) {
    mutual_information_forward_backward(frame, x, y, pointer(box), ans, x_grad, y_grad);
  });
  return call.result();
}

}  // namespace

void bind(nb::module_& module) {
  list_function(kForward);
  list_function(kBackward);
  list_function(kForwardBackward);
  define(module, "mutual_information_forward", &forward);
  define(module, "mutual_information_backward", &backward);
  define(module, "mutual_information_forward_backward", &forward_backward);
}

}  // namespace turnout::families::mutual_information
