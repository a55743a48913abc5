// Reads the counts of stacked samples.
#include "points/stacked.h"

namespace turnout::families::points {

using namespace core;

template <class Refuse>
void Starts::read(const ConstTensor& counts, std::int64_t rows, std::string_view name, std::string_view of,
                  const Refuse& refuse) {
  starts_[0] = 0;
  visit_index(counts.dtype, [&](auto type) {
    const auto* from = static_cast<const typename decltype(type)::type*>(counts.data);
    for (std::int64_t b = 0; b < samples_; ++b) {
      const std::int64_t count = load_once(from + b), left = rows - starts_[b];
      if (count < 0) refuse(concat(name, "[", b, "] is ", count, ", expected 0 or more"));
      if (count > left)
        refuse(concat(name, "[", b, "] is ", count, ", expected 0 .. ", left, ", the remainder of the ", rows,
                      " rows of ", of));
      starts_[b + 1] = starts_[b] + count;
    }
  });
  if (starts_[samples_] != rows)
    refuse(concat(name, " sums to ", starts_[samples_], samples_ == 0 ? " since batch is 0" : "",
                  ", expected the ", rows, " rows of ", of));
}

Starts::Starts(Call& call, Scratch& scratch, std::string_view name, const ConstTensor& counts,
               std::int64_t rows, std::string_view of)
    : samples_(counts.shape[0]), starts_(scratch.take<std::int64_t>(counts.shape[0] + 1)) {
  read(counts, rows, call.name(name), call.name(of), [&](const std::string& what) { call.refuse(what); });
}

Starts::Starts(Scratch& scratch, std::string_view op, std::string_view name, const ConstTensor& counts,
               std::int64_t rows, std::string_view of)
    : samples_(counts.shape[0]), starts_(scratch.take<std::int64_t>(counts.shape[0] + 1)) {
  read(counts, rows, name, of,
       [&](const std::string& what) { throw Error(ErrorCode::bad_param, concat(op, ": ", what)); });
}

}  // namespace turnout::families::points
