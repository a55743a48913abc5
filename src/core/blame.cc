// Decides which argument is at fault when extents disagree, and writes the error message.
#include "core/check.h"

namespace turnout::core {
namespace {

bool is_plain(const Extent& extent) { return extent.factor == 1 && extent.add == 0; }

std::string place_text(const Signature& signature, int argument, int position) {
  return concat(signature.arguments[argument].name, ".shape[", std::int64_t{position}, "]");
}

// "samples = 23", or "4" for an extent without a name.
std::string named(const Extent& extent, std::int64_t value) {
  return extent.names.count == 0 ? concat(value) : concat(extent.text, " = ", value);
}

}  // namespace

std::optional<Arguments::Said> Arguments::said_by(int i, int name) const {
  const Argument& argument = signature_.arguments[i];
  const Slot& slot = slots_[i];
  if (!slot.present) return {};
  const bool dropped = slot.rank < argument.dims.count;
  int position = 0;
  for (int dim = 0; dim < argument.dims.count; ++dim) {
    const Extent& extent = argument.dims[dim];
    if (dropped && extent.optional) continue;
    if (position >= slot.rank) break;  // the check of ranks refuses this tensor
    const std::int64_t actual = slot.shape[position++];
    if (extent.names.count != 1 || extent.names[0] != name || actual < extent.add) continue;
    const std::int64_t rest = actual - extent.add;
    if (rest % extent.factor != 0) continue;
    return Said{i, dim, position - 1, rest / extent.factor};
  }
  return {};
}

std::optional<Arguments::Said> Arguments::first_to_say(int name) const {
  for (int i = 0; i < signature_.arguments.count; ++i)
    if (const auto said = said_by(i, name); said && said->size == size(name)) return said;
  return {};
}

// Whether argument i is a matrix whose other dimension has the expected size.
bool Arguments::is_transposed(int i, int name, std::int64_t size) const {
  const Argument& argument = signature_.arguments[i];
  const Slot& slot = slots_[i];
  const auto said = said_by(i, name);
  return said && argument.dims.count == 2 && slot.rank == 2 && is_plain(argument.dims[0]) &&
         is_plain(argument.dims[1]) && argument.dims[1 - said->dim].names.count == 1 && said->size != size &&
         slot.shape[1 - said->dim] == size;
}

// is_transposed(), and no scalar or other argument confirms that the other dimension is right as it is.
bool Arguments::is_surely_transposed(int i, int name, std::int64_t size) const {
  if (!is_transposed(i, name, size)) return false;
  const int other_name = signature_.arguments[i].dims[1 - said_by(i, name)->dim].names[0];
  if (other_name < signature_.scalars.count) return false;
  for (int other = 0; other < signature_.arguments.count; ++other) {
    if (signature_.arguments[other].is_output() || is_transposed(other, name, size)) continue;
    const auto said = said_by(other, other_name);
    if (said && said->size == size) return false;
  }
  return true;
}

void Arguments::refuse_extent(const Step& step, int i, int dim, std::int64_t actual,
                              std::int64_t expected) const {
  const Extent& extent = signature_.arguments[i].dims[dim];
  int position = dim;
  if (slots_[i].rank < signature_.arguments[i].dims.count)
    for (int d = 0; d < dim; ++d) position -= signature_.arguments[i].dims[d].optional;
  const std::string sentence =
      concat(place_text(signature_, i, position), " is ", actual, ", expected ", named(extent, expected));
  // Only a size that is bound by shapes alone can be blamed on another argument, and only if the step checks
  // all extents: a step for single extents has an error code of its own.
  const bool is_size = extent.names.count == 1 && extent.names[0] >= signature_.scalars.count;
  const auto said = is_size && step.only.count == 0 ? said_by(i, extent.names[0]) : std::nullopt;
  if (!said || said->dim != dim || signature_.arguments[i].is_output()) fail(step.code, sentence);

  const auto name = static_cast<int>(extent.names[0]);  // NOLINT: a position, not a character
  const std::int64_t theirs = size(name);
  const auto refuse_transposed = [&](int argument, std::int64_t expected_size) {
    fail(step.code,
         concat(signature_.arguments[argument].name, " has shape ", shape_text(slots_[argument]),
                ", expected ", dims_text(signature_.arguments[argument]), " with ", signature_.names[name],
                " = ", expected_size, ": its dimensions are the other way round, transpose it"));
  };
  int with = 0, with_transposed = 0, against = 0, transposed = 0;
  std::optional<Said> first_against;
  for (int other = 0; other < signature_.arguments.count; ++other) {
    if (signature_.arguments[other].is_output()) continue;
    const auto vote = said_by(other, name);
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
  // that agree against this one are transposed if all of them would fit when transposed.
  const Argument& mine = signature_.arguments[i];
  if (with <= against && is_transposed(i, name, theirs) &&
      sizes_[mine.dims[1 - dim].names[0]] == slots_[i].shape[dim])
    refuse_transposed(i, theirs);
  if (against > 1 && transposed == against) refuse_transposed(first_against->argument, said->size);
  // A matrix whose other dimension may be absent is a list of vectors, which have two common layouts.
  if (with_transposed == with && (with > 1 || mine.dims[1 - dim].optional)) refuse_transposed(i, theirs);
  if (with <= against || !first_against) fail(step.code, sentence);
  const Extent& blamed = signature_.arguments[first_against->argument].dims[first_against->dim];
  fail(step.code, concat(place_text(signature_, first_against->argument, first_against->position), " is ",
                         slots_[first_against->argument].shape[first_against->position], ", expected ",
                         named(blamed, said->size * blamed.factor + blamed.add)));
}

void Arguments::refuse_rule(const Step& step, const Rule& rule, std::int64_t left, std::int64_t right) const {
  // The message names the side that is to blame, if possible as an extent of an argument.
  const bool is_least = rule.left.names.count == 0;
  const Extent& blamed = is_least ? rule.right : rule.left;
  const Extent& bound = is_least ? rule.left : rule.right;
  std::int64_t is = is_least ? right : left, limit = is_least ? left : right;
  std::string where(blamed.text);
  if (blamed.names.count == 1 && is_plain(blamed) && blamed.names[0] >= signature_.scalars.count) {
    if (const auto said = first_to_say(blamed.names[0])) {
      const Extent& extent = signature_.arguments[said->argument].dims[said->dim];
      if (is_plain(extent) || bound.names.count == 0) {
        where = place_text(signature_, said->argument, said->position);
        is = is * extent.factor + extent.add;
        limit = limit * extent.factor + extent.add;
      }
    }
  }
  const std::string found = is == kSizeMax ? "beyond 64 bits" : concat(is);
  if (is_least) fail(step.code, concat(where, " is ", found, ", expected ", limit, " or more"));
  // "px.shape[2] + 1 = 5": for a size that is bound by a shape, name the place where the caller sees it.
  std::string most = named(bound, limit);
  if (bound.names.count == 1 && bound.factor == 1 && bound.names[0] >= signature_.scalars.count) {
    const auto said = first_to_say(bound.names[0]);
    if (said && is_plain(signature_.arguments[said->argument].dims[said->dim]))
      most = concat(place_text(signature_, said->argument, said->position),
                    bound.add == 0 ? "" : concat(" + ", bound.add), " = ", limit);
  }
  fail(step.code, concat(where, " is ", found, ", expected at most ", most));
}

}  // namespace turnout::core
