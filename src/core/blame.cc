// Decides which argument is at fault when extents disagree, and writes the error message.
#include "core/check.h"

namespace turnout::core {
namespace {

bool is_plain(const Extent& extent) { return extent.factor == 1 && extent.add == 0; }

std::string plus(const std::string& text, std::int64_t add) {
  if (add == 0) return text;
  return add < 0 ? concat(text, " - ", -add) : concat(text, " + ", add);
}

}  // namespace

std::optional<Arguments::SizeSource> Arguments::source_in(int i, int name) const {
  const Argument& argument = signature_.arguments[i];
  const Slot& slot = slots_[i];
  if (!slot.present) return {};
  const bool dropped = slot.rank < argument.dims.count;
  int position = 0;
  for (int dim = 0; dim < argument.dims.count; ++dim) {
    const Extent& extent = argument.dims[dim];
    if (dropped && extent.optional) continue;
    const int spread = spread_of(i, dim), first = position;
    if (spread < 1 || first + spread > slot.rank) break;  // the check of ranks rejects this tensor
    std::int64_t actual = 1;
    for (int d = 0; d < spread; ++d) actual *= slot.shape[position++];
    if (extent.names.count != 1 || extent.names[0] != name || actual < extent.add) continue;
    const std::int64_t rest = actual - extent.add;
    if (rest % extent.factor != 0) continue;
    return SizeSource{i, dim, first, rest / extent.factor};
  }
  return {};
}

std::optional<Arguments::SizeSource> Arguments::source_of(int name) const {
  if (name < signature_.scalars.count || (given_ >> name & 1) != 0) return {};
  for (int i = 0; i < signature_.arguments.count; ++i)
    if (const auto said = source_in(i, name); said && said->size == size(name)) return said;
  return {};
}

std::string Arguments::place_text(int argument, int position, int spread) const {
  const std::string first = concat(std::int64_t{position});
  if (spread == 1) return concat(name(argument), ".shape[", first, "]");
  return concat("the product of ", name(argument), ".shape[", first, ":", std::int64_t{position + spread},
                "]");
}

std::string Arguments::size_text(int name, const std::optional<SizeSource>& said) const {
  std::string own(this->name(signature_.names[name]));
  if (name < signature_.scalars.count)
    return signature_.scalars[name].is_vector ? concat("volume(", own, ")") : own;
  if (!said) return own;
  const Extent& extent = signature_.arguments[said->argument].dims[said->dim];
  std::string rest = plus(place_text(*said), -extent.add);
  if (extent.factor == 1) return rest;
  return concat(extent.add == 0 ? rest : concat("(", rest, ")"), " / ", extent.factor);
}

std::string Arguments::origin_text(const Extent& extent, const std::optional<SizeSource>& said) const {
  if (extent.names.count == 1 && said) {
    const Extent& stated = signature_.arguments[said->argument].dims[said->dim];
    if (stated.factor == extent.factor) return plus(place_text(*said), extent.add - stated.add);
  }
  std::string product = extent.factor == 1 ? "" : concat(extent.factor);
  for (const std::int8_t name : extent.names) {
    if (sizes_[name] == kAbsent) continue;
    std::string text = size_text(name, extent.names.count == 1 ? said : source_of(name));
    const bool is_alone = extent.names.count == 1 && extent.factor == 1;
    if (!is_alone && text.find(' ') != std::string::npos) text = concat("(", text, ")");
    product += concat(product.empty() ? "" : " * ", text);
  }
  return plus(product, extent.add);
}

std::string Arguments::value_text(const Extent& extent, std::int64_t value) const {
  std::string text = concat(value), absent;
  bool is_constant = true;
  for (const std::int8_t name : extent.names) {
    is_constant &= sizes_[name] == kAbsent;
    if (sizes_[name] == kAbsent) absent = concat(", since there is no dimension ", signature_.names[name]);
  }
  if (!is_constant) text += concat(" = ", origin_text(extent, source_of(extent.names[0])));
  return text + absent;
}

// Whether argument i is a matrix whose other dimension has the expected size.
bool Arguments::is_transposed(int i, int name, std::int64_t size) const {
  const Argument& argument = signature_.arguments[i];
  const Slot& slot = slots_[i];
  const auto said = source_in(i, name);
  return said && argument.dims.count == 2 && slot.rank == 2 && is_plain(argument.dims[0]) &&
         is_plain(argument.dims[1]) && argument.dims[1 - said->dim].names.count == 1 && said->size != size &&
         slot.shape[1 - said->dim] == size;
}

// is_transposed(), and no scalar or other argument confirms the other dimension as it is.
bool Arguments::is_surely_transposed(int i, int name, std::int64_t size) const {
  if (!is_transposed(i, name, size)) return false;
  const int other_name = signature_.arguments[i].dims[1 - source_in(i, name)->dim].names[0];
  if (other_name < signature_.scalars.count) return false;
  for (int other = 0; other < signature_.arguments.count; ++other) {
    if (signature_.arguments[other].is_output() || is_transposed(other, name, size)) continue;
    const auto said = source_in(other, other_name);
    if (said && said->size == size) return false;
  }
  return true;
}

void Arguments::refuse_extent(const Step& step, int i, int dim, std::int64_t actual,
                              std::int64_t expected) const {
  const Extent& extent = signature_.arguments[i].dims[dim];
  const bool dropped = slots_[i].rank < signature_.arguments[i].dims.count;
  int position = 0;
  for (int d = 0; d < dim; ++d)
    position += dropped && signature_.arguments[i].dims[d].optional ? 0 : spread_of(i, d);
  const std::string message = concat(place_text(i, position, spread_of(i, dim)), " is ", actual,
                                     ", expected ", value_text(extent, expected));
  // Blame another argument only for a size that shapes alone bind, and only if the step checks all extents: a
  // step for single extents has its own error code.
  const bool is_size = extent.names.count == 1 && extent.names[0] >= signature_.scalars.count;
  const auto said = is_size && step.only.count == 0 ? source_in(i, extent.names[0]) : std::nullopt;
  if (!said || said->dim != dim || signature_.arguments[i].is_output()) fail(step.code, message);

  const auto name = static_cast<int>(extent.names[0]);  // NOLINT: a position, not a character
  const std::int64_t theirs = size(name);
  const auto refuse_transposed = [&](int argument, std::int64_t expected_size) {
    fail(step.code, concat(this->name(argument), " has shape ", shape_text(slots_[argument]), ", expected ",
                           dims_text(signature_.arguments[argument]), " with ", signature_.names[name], " = ",
                           expected_size, ": its dimensions are the other way round, transpose it"));
  };
  int with = 0, with_transposed = 0, against = 0, transposed = 0;
  std::optional<SizeSource> first_against;
  for (int other = 0; other < signature_.arguments.count; ++other) {
    if (signature_.arguments[other].is_output()) continue;
    const auto vote = source_in(other, name);
    if (vote && vote->size == said->size) {
      ++with;
      with_transposed += is_surely_transposed(other, name, theirs);
    }
    if (!vote || vote->size != theirs) continue;
    ++against;
    transposed += is_surely_transposed(other, name, said->size);
    if (!first_against) first_against = vote;
  }
  // This matrix is transposed if each of its extents has the size expected of the other one. Several matrices
  // that disagree with it are transposed if all of them would fit when transposed.
  const Argument& mine = signature_.arguments[i];
  if (with <= against && is_transposed(i, name, theirs) &&
      sizes_[mine.dims[1 - dim].names[0]] == slots_[i].shape[dim])
    refuse_transposed(i, theirs);
  if (against > 1 && transposed == against) refuse_transposed(first_against->argument, said->size);
  // A matrix whose other dimension may be absent is a list of vectors, which have two common layouts.
  if (with_transposed == with && (with > 1 || mine.dims[1 - dim].optional)) refuse_transposed(i, theirs);
  if (with <= against || !first_against) fail(step.code, message);
  const Extent& blamed = signature_.arguments[first_against->argument].dims[first_against->dim];
  fail(step.code,
       concat(place_text(*first_against), " is ", first_against->size * blamed.factor + blamed.add,
              ", expected ", said->size * blamed.factor + blamed.add, " = ", origin_text(blamed, said)));
}

void Arguments::refuse_rule(const Step& step, const Rule& rule, std::int64_t left, std::int64_t right) const {
  // The message names the side at fault, if possible as a scalar or as an extent of an argument.
  const bool is_least = rule.left.names.count == 0;
  const Extent& blamed = is_least ? rule.right : rule.left;
  Extent bound = is_least ? rule.left : rule.right;
  std::int64_t is = is_least ? right : left, limit = is_least ? left : right;
  std::string where = origin_text(blamed, std::nullopt);
  if (blamed.names.count == 1 && blamed.factor == 1) {
    const auto name = static_cast<int>(blamed.names[0]);  // NOLINT: a position, not a character
    const auto said = source_of(name);
    const Extent place = said ? signature_.arguments[said->argument].dims[said->dim] : Extent{};
    const bool is_named = said || (name < signature_.scalars.count && !signature_.scalars[name].is_vector);
    if (is_named && (place.factor == 1 || bound.names.count == 0)) {
      where = said ? place_text(*said) : std::string(this->name(signature_.names[name]));
      const std::int64_t shift = place.add - blamed.add * place.factor;
      is = is * place.factor + shift;
      limit = limit * place.factor + shift;
      bound.add += shift;
    }
  }
  const std::string found = is == kSizeMax ? "beyond 64 bits" : concat(is);
  fail(step.code,
       concat(where, " is ", found, ", expected ",
              is_least ? concat(limit, " or more") : concat("at most ", value_text(bound, limit))));
}

}  // namespace turnout::core
