// Implements the checks of shapes: binds sizes to extents and computes the shapes of results.
#include "core/check.h"
#include "core/saturate.h"

namespace turnout::core {
namespace {

// The joint extent of several dimensions. If one is negative or unknown, returns it.
std::int64_t extent_of(const std::int64_t* shape, int count) {
  for (int d = 0; d < count; ++d)
    if (shape[d] < 0) return shape[d];
  return saturating_volume(shape, count);
}

}  // namespace

int Arguments::spread_of(int i, int dim) const {
  const Argument& argument = signature_.arguments[i];
  return argument.dims[dim].is_folded ? slots_[i].rank - (argument.dims.count - 1) : 1;
}

// Binds the only unbound factor of a product and returns the extent. If another factor is 0, any extent
// fits.
std::int64_t Arguments::bind_factor(const Step& step, int i, int dim, int position, std::int64_t actual) {
  const Extent& extent = signature_.arguments[i].dims[dim];
  Extent others = extent;
  others.names = {};
  std::int8_t unbound = -1;
  for (const std::int8_t name : extent.names) {
    if (sizes_[name] != kUnbound) {
      others.names.push(name);
    } else if (unbound >= 0) {
      return kUnbound;
    } else {
      unbound = name;
    }
  }
  if (spread_of(i, dim) == extent.names.count) {  // each factor has a dimension
    for (int k = 0; k < extent.names.count; ++k)
      if (extent.names[k] == unbound) sizes_[unbound] = slots_[i].shape[position + k];
    return evaluate(extent);
  }
  others.add = 0;
  const std::int64_t known = evaluate(others);
  if (known <= 0) {
    sizes_[unbound] = 0;
    return actual;
  }
  if (actual % known != 0)
    fail(step.code, concat(place_text(i, position, spread_of(i, dim)), " is ", actual,
                           ", expected a multiple of ", value_text(others, known)));
  sizes_[unbound] = actual / known;
  return actual;
}

// A product that is spread over several dimensions has one per factor.
void Arguments::check_factors(const Step& step, int i, const Extent& extent, int position, int spread) const {
  if (spread != extent.names.count)
    fail(step.code, concat(name(i), " has ", std::int64_t{slots_[i].rank}, " dimensions, expected ",
                           dims_text(signature_.arguments[i])));
  for (int k = 0; k < spread; ++k) {
    const std::int8_t factor = extent.names[k];
    const std::int64_t actual = slots_[i].shape[position + k];
    if (sizes_[factor] == kUnbound || actual == size(factor)) continue;
    fail(step.code, concat(place_text(i, position + k), " is ", actual, ", expected ", size(factor), " = ",
                           size_text(factor)));
  }
}

// Tensors that spread the same size over several dimensions must agree in each of them: if only the product
// fits, the order of the elements may differ. A single dimension fits any spread.
void Arguments::check_spread(const Step& step, int i, const Extent& extent, int position, int spread) const {
  for (int other = 0; other < i; ++other) {
    const Argument& argument = signature_.arguments[other];
    if (!slots_[other].present) continue;
    int first = 0;
    for (int dim = 0; dim < argument.dims.count; first += spread_of(other, dim++)) {
      if (!argument.dims[dim].is_folded || argument.dims[dim].text != extent.text) continue;
      const int theirs = spread_of(other, dim);
      if (theirs <= 1) continue;
      if (theirs != spread)
        fail(step.code, concat(name(i), " has ", std::int64_t{slots_[i].rank}, " dimensions, expected ",
                               std::int64_t{slots_[i].rank + theirs - spread}, ": as many for ", extent.text,
                               " as ", name(other), " has"));
      for (int d = 0; d < spread; ++d) {
        const std::int64_t mine = slots_[i].shape[position + d], its = slots_[other].shape[first + d];
        if (mine == its || (only_metadata_ && (mine == kUnknownExtent || its == kUnknownExtent))) continue;
        fail(step.code, concat(place_text(i, position + d), " is ", mine, ", expected ", its, " = ",
                               place_text(other, first + d)));
      }
      return;
    }
  }
}

void Arguments::check_shape(const Step& step, int i, int only_dim) {
  const Argument& argument = signature_.arguments[i];
  const Slot& slot = slots_[i];
  const bool dropped = slot.rank < argument.dims.count;
  int d = 0;  // position in the tensor; `dim` is the position in the signature
  for (int dim = 0; dim < argument.dims.count; ++dim) {
    const Extent& extent = argument.dims[dim];
    if (dropped && extent.optional) {
      std::int64_t& bound = sizes_[extent.names[0]];
      if (bound >= 0)
        fail(step.code, concat(name(argument.name), " has no dimension ", extent.text, ", expected ",
                               dims_text(argument), " with ", extent.text, " = ", bound));
      bound = kAbsent;
      continue;
    }
    const int position = d, spread = spread_of(i, dim);
    const std::int64_t actual = spread == 1 ? slot.shape[d] : extent_of(slot.shape + d, spread);
    d += spread;
    if (only_dim >= 0 && only_dim != dim) continue;
    if (only_metadata_ && actual == kUnknownExtent) continue;
    if (spread > 1 && extent.names.count > 1) check_factors(step, i, extent, position, spread);
    if (spread > 1 && extent.names.count == 1) check_spread(step, i, extent, position, spread);
    if (actual < 0)
      fail(step.code, concat(place_text(i, position, spread), " is ", actual, ", expected 0 or more"));
    if (extent.optional && sizes_[extent.names[0]] == kAbsent)
      fail(step.code, concat(name(argument.name), " has a dimension ", extent.text,
                             " that an earlier argument does not have; its shape is ", shape_text(slot)));
    std::int64_t expected = evaluate(extent);
    if (expected == kUnbound && extent.names.count == 1) {
      if (actual < extent.add)
        fail(step.code,
             concat(place_text(i, position, spread), " is ", actual, ", expected ", extent.add, " or more"));
      sizes_[extent.names[0]] = (actual - extent.add) / extent.factor;
      expected = evaluate(extent);
    }
    if (expected == kUnbound && extent.names.count > 1)
      expected = bind_factor(step, i, dim, position, actual);
    if (expected == kUnbound) expected = extent.add;
    if (actual != expected) refuse_extent(step, i, dim, actual, expected);
  }
}

// The dimensions of the input that has the same extent; if there is none, one per factor.
template <class Push>
void Arguments::push_folded(const Extent& extent, const Push& push) const {
  for (int i = 0; i < signature_.arguments.count; ++i) {
    const Argument& argument = signature_.arguments[i];
    if (argument.is_output() || !slots_[i].present) continue;
    int position = 0;
    for (int dim = 0; dim < argument.dims.count; ++dim) {
      const int spread = spread_of(i, dim);
      if (argument.dims[dim].is_folded && argument.dims[dim].text == extent.text) {
        for (int d = 0; d < spread; ++d) push(slots_[i].shape[position + d]);
        return;
      }
      position += spread;
    }
  }
  for (const std::int8_t name : extent.names) push(size(name));
}

int Arguments::result_shape(int i, std::int64_t* shape) const {
  int rank = 0;
  const auto push = [&](std::int64_t extent) {
    if (rank < kMaxRank) shape[rank++] = extent;
  };
  for (const Extent& extent : signature_.arguments[i].dims) {
    if (extent.optional && sizes_[extent.names[0]] == kAbsent) continue;
    if (!extent.is_folded) {
      push(evaluate(extent));
      continue;
    }
    push_folded(extent, push);
  }
  return rank;
}

}  // namespace turnout::core
