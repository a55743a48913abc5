// Reads lists of rows, and finds the nearest of each list.
#include "points/given_lists.h"

#include <algorithm>
#include <limits>
#include <string>

#include "points/clouds.h"
#include "points/signature.h"
#include "turnout/points.h"

namespace turnout {
namespace families::points {

using namespace core;

GivenLists::GivenLists(Call& call, Scratch& scratch, const ConstTensor& rows, const ConstTensor& starts,
                       std::int64_t points)
    : rows_(scratch.take<std::int32_t>(rows.shape[0])), starts_(scratch.take<std::int64_t>(starts.shape[0])) {
  const std::int64_t entries = rows.shape[0], last = starts.shape[0] - 1;
  visit_index(starts.dtype, [&](auto type) {
    const auto* from = static_cast<const typename decltype(type)::type*>(starts.data);
    for (std::int64_t q = 0; q <= last; ++q) {
      const std::int64_t start = load_once(from + q), least = q == 0 ? 0 : starts_[q - 1];
      const auto refuse = [&](const std::string& expected) {
        call.refuse(concat(call.name("starts"), "[", q, "] is ", start,
                           last == 0 ? " since queries is 0" : "", ", expected ", expected));
      };
      if (q == last && start != entries) refuse(concat(entries, ", the elements of ", call.name("rows")));
      if (q == 0 && start != 0) refuse("0");
      if (start < least || start > entries) refuse(concat(least, " .. ", entries));
      starts_[q] = start;
    }
  });
  visit_index(rows.dtype, [&](auto type) {
    const auto* from = static_cast<const typename decltype(type)::type*>(rows.data);
    serial_for(0, entries, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t row = load_once(from + i);
        if (!in_range(row, points))
          call.refuse(concat(call.name("rows"), "[", i, "] is ", row,
                             points == 0 ? std::string(", but none is valid since points is 0")
                                         : concat(", expected 0 .. ", points - 1)));
        rows_[i] = static_cast<std::int32_t>(row);
      }
    });
  });
}

namespace {

// The three nearest points so far. Of equals, the one that was added first is nearer.
template <class Real>
struct Three {
  Real squares[3] = {std::numeric_limits<Real>::infinity(), std::numeric_limits<Real>::infinity(),
                     std::numeric_limits<Real>::infinity()};
  std::int32_t rows[3] = {-1, -1, -1};

  void add(Real square, std::int32_t row) {
    if (!(square < squares[2])) return;
    int i = 2;
    for (; i > 0 && square < squares[i - 1]; --i) {
      squares[i] = squares[i - 1];
      rows[i] = rows[i - 1];
    }
    squares[i] = square;
    rows[i] = row;
  }
  void fill() {
    for (int i = 1; i < 3; ++i) {
      if (rows[i] >= 0) continue;
      squares[i] = squares[0];
      rows[i] = rows[0];
    }
  }
};

}  // namespace
}  // namespace families::points

using namespace families::points;

void three_nn_of_lists(const ConstTensor& xyz, const ConstTensor& centers, const ConstTensor& rows,
                       const ConstTensor& starts, const Tensor& dist2, const Tensor& idx,
                       const Caller& caller) {
  Call call(caller, kThreeNnOfLists, {xyz, centers, rows, starts, dist2, idx}, {});
  if (call.nothing_to_do()) return;
  call.chose("lists", call.context().threads());
  const FpEnvironment environment;  // the caller's may round otherwise, or trap
  Scratch& scratch = call.scratch(GivenLists::bytes(rows, starts));
  const GivenLists lists(call, scratch, rows, starts, xyz.shape[0]);
  const std::int64_t queries = centers.shape[0], cells = centers.shape[1];
  visit_lane(xyz.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    const auto *points = static_cast<const Real*>(xyz.data), *from = static_cast<const Real*>(centers.data);
    auto* squares = static_cast<Real*>(dist2.data);
    visit_index(idx.dtype, [&](auto index) {
      using Index = typename decltype(index)::type;
      auto* to = static_cast<Index*>(idx.data);
      parallel_for(call.context(), queries, kQueryGrain, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t q = first; q < last; ++q)
          for (std::int64_t cell = q * cells; cell < (q + 1) * cells; ++cell) {
            const Real* center = from + 3 * cell;
            Three<Real> three;
            for (std::int64_t i = lists.start(q); i < lists.start(q + 1); ++i) {
              const Real* p = points + 3 * std::int64_t{lists.rows()[i]};
              const Real dx = p[0] - center[0], dy = p[1] - center[1], dz = p[2] - center[2];
              three.add((dx * dx + dy * dy) + dz * dz, lists.rows()[i]);
            }
            three.fill();
            for (int k = 0; k < 3; ++k) {
              squares[3 * cell + k] = three.squares[k];
              to[3 * cell + k] = static_cast<Index>(three.rows[k]);
            }
          }
      });
    });
  });
}

}  // namespace turnout
