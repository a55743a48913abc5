// The mutual information operators.
#include "turnout/mutual_information.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "indices/indices.h"
#include "mutual_information/kernels.h"
#include "mutual_information/plan.h"
#include "mutual_information/signature.h"
#include "runtime/call.h"
#include "runtime/parallel.h"

namespace turnout {
namespace families::mutual_information {

using namespace core;
namespace {

// Copies the caller's boundary to `copy` and returns that, or nullptr if there is none; every component of
// the copy is in 0 .. S or 0 .. T. Another thread may change the caller's memory at any time, so each element
// is read once, and the copy is checked and used.
const std::int64_t* checked_boundary(Call& call, const ConstTensor& px, const ConstTensor& py,
                                     const ConstTensor& boundary, std::int64_t* copy) {
  if (boundary.is_absent()) return nullptr;
  const auto* given = static_cast<const std::int64_t*>(boundary.data);
  const std::int64_t count = boundary.shape[0] * 4, limits[2] = {px.shape[1], py.shape[2]};
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t value = load_once(given + i), limit = limits[i % 2];
    if (value < 0 || value > limit)
      call.refuse(concat(call.name("boundary"), "[", i / 4, ", ", i % 4, "] is ", value, ", expected 0 .. ",
                         limit, i % 2 == 0 ? " symbols" : " frames"));
    copy[i] = value;
  }
  return copy;
}

LatticeTask task_of(const ConstTensor& px, const ConstTensor& py, const std::int64_t* boundary) {
  return {px.data, py.data, boundary, px.dtype, px.shape[1], py.shape[2], px.shape[2]};
}

LatticePlan plan_of(const ConstTensor& px, const ConstTensor& py, int threads,
                    std::int64_t kept_cell_bytes = 0) {
  return {px.shape[0], px.shape[1], py.shape[2], threads, kept_cell_bytes};
}

// Sets the cells of p that no kernel writes to -infinity.
template <class Real>
void fill_outside(Context& context, const LatticeTask& task, const Tensor& p) {
  const std::int64_t rows = p.shape[1], columns = p.shape[2];
  constexpr Real kUnreachable = -std::numeric_limits<Real>::infinity();
  const std::int64_t bytes = rows * columns * std::int64_t{sizeof(Real)};
  parallel_for(context, p.shape[0], kParallelBytes / bytes + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const LatticeBox box = box_of(task, b);
      auto* row = static_cast<Real*>(p.data) + b * rows * columns;
      for (std::int64_t s = 0; s < rows; ++s, row += columns) {
        const bool is_outside = box.is_empty() || s < box.s_begin || s > box.s_end;
        std::fill(row, row + (is_outside ? columns : box.t_begin), kUnreachable);
        if (!is_outside) std::fill(row + box.t_end + 1, row + columns, kUnreachable);
      }
    }
  });
}

}  // namespace
}  // namespace families::mutual_information

using namespace families::mutual_information;

void mutual_information_forward(const ConstTensor& px, const ConstTensor& py, const ConstTensor& boundary,
                                const Tensor& p, const Tensor& ans, Outside outside, const Caller& caller) {
  Context& context = caller.context();
  Call call(caller, kMutualInformationForward, {px, py, boundary, p, ans}, {outside});
  if (call.nothing_to_do()) return;
  const LatticePlan plan = plan_of(px, py, context.threads());
  const LatticePlan::Memory memory = plan.take(call.scratch(plan.scratch_bytes()));
  const LatticeTask task = task_of(px, py, checked_boundary(call, px, py, boundary, memory.boundary));
  call.chose("anti-diagonals", plan.threads());
  const ForwardTask forward{task, p.data, 0, ans.data};
  plan.run(context, task, memory,
           [&](std::int64_t, std::byte*, const auto& run) { run(forward_kernels(context.isa()), forward); });
  if (outside == Outside::keep || task.boundary == nullptr) return;
  p.dtype == DType::f64 ? fill_outside<double>(context, task, p) : fill_outside<float>(context, task, p);
}

void mutual_information_backward(const ConstTensor& px, const ConstTensor& py, const ConstTensor& boundary,
                                 const ConstTensor& p, const Tensor& ans_grad, const Tensor& px_grad,
                                 const Tensor& py_grad, bool overwrite_ans_grad, const Caller& caller) {
  Context& context = caller.context();
  Call call(caller, kMutualInformationBackward, {px, py, boundary, p, ans_grad, px_grad, py_grad},
            {overwrite_ans_grad});
  if (call.nothing_to_do()) return;
  const LatticePlan plan = plan_of(px, py, context.threads());
  const LatticePlan::Memory memory = plan.take(call.scratch(plan.scratch_bytes()));
  const LatticeTask task = task_of(px, py, checked_boundary(call, px, py, boundary, memory.boundary));
  call.chose("rows", plan.threads());
  std::atomic<bool> has_plain = false;
  const BackwardTask backward{
      task, p.data, 0, px_grad.data, py_grad.data, ans_grad.data, overwrite_ans_grad, &has_plain};
  plan.run(context, task, memory, [&](std::int64_t, std::byte*, const auto& run) {
    run(backward_kernels(context.isa()), backward);
  });
  if (has_plain) call.chose("rows, some lattices cell by cell", plan.threads());
}

void mutual_information_forward_backward(const ConstTensor& px, const ConstTensor& py,
                                         const ConstTensor& boundary, const Tensor& ans,
                                         const Tensor& px_grad, const Tensor& py_grad, const Caller& caller) {
  Context& context = caller.context();
  Call call(caller, kMutualInformationForwardBackward, {px, py, boundary, ans, px_grad, py_grad}, {});
  if (call.nothing_to_do()) return;
  const LatticePlan plan = plan_of(px, py, context.threads(), size_of(ans.dtype));
  const LatticePlan::Memory memory = plan.take(call.scratch(plan.scratch_bytes()));
  const LatticeTask task = task_of(px, py, checked_boundary(call, px, py, boundary, memory.boundary));
  call.chose("anti-diagonals, rows", plan.threads());
  plan.run(context, task, memory, [&](std::int64_t first_row, std::byte* odds, const auto& run) {
    run(forward_kernels(context.isa()), ForwardTask{task, odds, first_row, ans.data, Stored::odds});
    run(flow_kernels(context.isa()), BackwardTask{task, odds, first_row, px_grad.data, py_grad.data});
  });
}

}  // namespace turnout
