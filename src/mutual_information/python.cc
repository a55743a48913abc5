// Python bindings of this family.
#include <algorithm>

#include "bindings/python/call.h"
#include "core/check.h"
#include "mutual_information/signature.h"
#include "runtime/caller.h"
#include "turnout/mutual_information.h"

namespace turnout::families::mutual_information {

using namespace core;
using namespace bindings;
namespace {

constexpr PythonFunction kForward{"mutual_information_forward", kMutualInformationForward, "outside="};
constexpr PythonFunction kBackward{"mutual_information_backward", kMutualInformationBackward};
constexpr PythonFunction kForwardBackward{"mutual_information_forward_backward",
                                          kMutualInformationForwardBackward};

std::int64_t one_more(std::int64_t extent) { return std::min(extent, kSizeMax - 1) + 1; }

nb::object forward(nb::handle px, nb::handle py, nb::handle boundary, nb::handle out,
                   bool use_torch_threads) {
  PythonCall call(kForward, use_torch_threads);
  const ConstTensor x = call.in(px);
  const ConstTensor y = call.in(py);
  const ConstTensor box = call.optional_in(boundary);
  const auto to = call.outs(out);
  const Tensor p = call.out(to[0], {x.shape[0], one_more(x.shape[1]), one_more(y.shape[2])});
  const Tensor ans = call.out(to[1], {x.shape[0]});
  // A p that is made here has no content to keep.
  const Outside outside = to[0].is_none() ? Outside::minus_infinity : Outside::keep;
  call.run([&](const Caller& caller) { mutual_information_forward(x, y, box, p, ans, outside, caller); });
  return call.result();
}

nb::object backward(nb::handle px, nb::handle py, nb::handle p, nb::handle ans_grad, nb::handle boundary,
                    nb::handle overwrite_ans_grad, nb::handle out, bool use_torch_threads) {
  PythonCall call(kBackward, use_torch_threads);
  const ConstTensor x = call.in(px);
  const ConstTensor y = call.in(py);
  const ConstTensor box = call.optional_in(boundary);
  const ConstTensor lattice = call.in(p);
  const bool overwrites = call.flag(overwrite_ans_grad, "overwrite_ans_grad");
  const Tensor grad = call.inout(ans_grad, overwrites);
  const auto to = call.outs(out);
  const Tensor x_grad = call.out(to[0], x);
  const Tensor y_grad = call.out(to[1], y);
  call.run([&](const Caller& caller) {
    mutual_information_backward(x, y, box, lattice, grad, x_grad, y_grad, overwrites, caller);
  });
  return call.result();
}

nb::object forward_backward(nb::handle px, nb::handle py, nb::handle boundary, nb::handle out,
                            bool use_torch_threads) {
  PythonCall call(kForwardBackward, use_torch_threads);
  const ConstTensor x = call.in(px);
  const ConstTensor y = call.in(py);
  const ConstTensor box = call.optional_in(boundary);
  const auto to = call.outs(out);
  const Tensor ans = call.out(to[0], {x.shape[0]});
  const Tensor x_grad = call.out(to[1], x);
  const Tensor y_grad = call.out(to[2], y);
  call.run([&](const Caller& caller) {
    mutual_information_forward_backward(x, y, box, ans, x_grad, y_grad, caller);
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
