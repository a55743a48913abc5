// Draws the arguments of random calls.
#include "bindings/drawn_call.h"

#include <algorithm>
#include <bit>

#include "core/dtypes.h"
#include "simd/half.h"

namespace turnout::bindings {

using namespace core;

void fill(const OwnedTensor& to, Random& random, std::int64_t lowest, std::int64_t bound) {
  const bool is_coarse = random.one_in(2);
  if (is_floating(to.tensor.dtype)) {
    const std::int64_t steps = is_coarse ? 16 : 20000;
    visit_float(to.tensor.dtype, [&](auto type) {
      using T = typename decltype(type)::type;
      auto* elements = static_cast<T*>(to.tensor.data);
      for (std::int64_t i = 0; i < to.elements(); ++i) {
        const double value =
            2 * static_cast<double>(random.below(2 * steps + 1) - steps) / static_cast<double>(steps);
        if constexpr (sizeof(T) == 2) {
          elements[i] = from_float<T>(static_cast<float>(value));
        } else {
          elements[i] = static_cast<T>(value);
        }
      }
    });
  } else {
    visit_integer(size_of(to.tensor.dtype), [&](auto type) {
      using T = typename decltype(type)::type;
      auto* elements = static_cast<T*>(to.tensor.data);
      const bool is_flag = to.tensor.dtype == DType::boolean;
      for (std::int64_t i = 0; i < to.elements(); ++i)
        elements[i] = static_cast<T>(is_flag ? random.below(2) : lowest + random.below(bound));
    });
  }
}

namespace {

bool is_optional(const Signature& signature, int name) {
  for (const Argument& argument : signature.arguments)
    for (const Extent& dim : argument.dims)
      if (dim.optional && dim.names[0] == name) return true;
  return false;
}

DType draw_dtype(const Signature& signature, int position, std::vector<DType>& dtypes, Random& random) {
  DType& dtype = dtypes[static_cast<std::size_t>(position)];
  if (dtype != kForeign) return dtype;
  const Argument& argument = signature.arguments[position];
  if (argument.like >= 0 && (argument.dtypes == 0 || random.one_in(2))) {
    const DType like = draw_dtype(signature, argument.like, dtypes, random);
    return dtype = argument.is_lane ? lane_dtype(like) : like;
  }
  for (std::int64_t skip = random.below(std::popcount(argument.dtypes)), i = 0; dtype == kForeign; ++i)
    if (contains(argument.dtypes, static_cast<DType>(i)) && skip-- == 0) dtype = static_cast<DType>(i);
  return dtype;
}

}  // namespace

Drawn::Drawn(const Operator& op, Random& random) : values(*op.signature, op.example, random.one_in(3)) {
  const Signature& signature = *op.signature;
  draw_values(signature, random);
  for (int i = 0; i < signature.size_flags.count; ++i) size_flags.push_back(random.one_in(2));
  std::vector<DType> dtypes(static_cast<std::size_t>(signature.arguments.count), kForeign);
  for (int i = 0; i < signature.arguments.count; ++i) draw_dtype(signature, i, dtypes, random);
  for (int i = 0; i < signature.arguments.count; ++i) {
    const Argument& argument = signature.arguments[i];
    requests.push_back(!argument.request.empty() && random.one_in(2));
    const bool is_input = !argument.is_output();
    if (!is_input || (argument.optional && random.one_in(2))) {
      inputs.emplace_back();
    } else {
      const std::vector<std::int64_t> shape = values.shape(i);
      inputs.emplace_back(dtypes[static_cast<std::size_t>(i)], shape.data(), static_cast<int>(shape.size()));
      // Indices are below an extent of the call, so that most are valid; some are not.
      const auto name = static_cast<std::size_t>(random.below(signature.names.count));
      const std::int64_t bound = std::clamp<std::int64_t>(values.sizes[name], 1, 100);
      fill(inputs.back(), random, random.one_in(4) ? -1 : 0, random.one_in(4) ? bound + 1 : bound);
    }
  }
  if (op.prepare == nullptr) return;
  std::vector<Tensor> views;
  for (const OwnedTensor& input : inputs) views.push_back(input.tensor);
  op.prepare(views.data());
}

void Drawn::draw_values(const Signature& signature, Random& random) {
  static constexpr std::int64_t kExtents[] = {0, 1, 2, 3, 5, 8, 17, 33};
  for (int i = 0; i < signature.names.count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    std::int64_t& size = values.sizes[at];
    if (i >= signature.scalars.count) {
      const bool is_dropped = values.drops_dimensions && is_optional(signature, i);
      if (!is_dropped && random.one_in(2)) size = kExtents[random.below(std::size(kExtents))];
      continue;
    }
    const Scalar& scalar = signature.scalars[i];
    if (scalar.is_real) {
      for (double& value : values.reals[at])
        if (random.one_in(3))
          value = std::clamp(value * static_cast<double>(random.below(5)) / 2, scalar.least, scalar.most);
    } else if (scalar.is_vector) {
      size = 1;
      for (std::int64_t& value : values.vectors[at]) {
        if (random.one_in(3)) value = std::min(scalar.max, scalar.min + random.below(3));
        size *= value;
      }
    } else if (!scalar.values.empty()) {
      size = scalar.min + random.below(scalar.max - scalar.min + 1);
    } else if (random.one_in(3)) {
      size = std::min(scalar.max, std::max<std::int64_t>(scalar.min, 0) + random.below(6));
    }
  }
}

}  // namespace turnout::bindings
