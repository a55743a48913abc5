// Included by the files with mutants in the copy that tools/mutate.py builds. Each place that can be changed
// has a number; the variable TURNOUT_MUTANT selects the one that is changed in this process.
//
//   a < b           a < turnout_mutants::at(7) < b              7: a >= b, 8: a <= b
//   a == b          a == turnout_mutants::at(9) == b            9: a != b
//   if (x) throw    if (turnout_mutants::kept(10) && (x)) throw   10: never throws
//
// The operators around at() bind like the one they replace. What the compiler evaluates stays unchanged.
#pragma once
#pragma clang diagnostic ignored "-Weverything"  // also in the files that include this

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <type_traits>

namespace turnout_mutants {

// What the process evaluated, by number: 1 for integers or pointers, 2 for anything else.
inline constexpr int kMost = 8192;
inline unsigned char reached[kMost];

inline int active_number() {
  const char* text = std::getenv("TURNOUT_MUTANT");
  return text == nullptr ? 0 : std::atoi(text);
}
inline const int active = active_number();

// When the process ends, writes `reached` to a file in the folder TURNOUT_REACHED, if that is set.
struct Report {
  ~Report() {
    const char* folder = std::getenv("TURNOUT_REACHED");
    if (folder == nullptr) return;
    const std::string path = std::string(folder) + "/" + std::to_string(getpid());
    if (std::FILE* file = std::fopen(path.c_str(), "wb")) {
      std::fwrite(reached, 1, sizeof(reached), file);
      std::fclose(file);
    }
  }
};
inline const Report report;

#define TURNOUT_MUTANT_INLINE [[gnu::always_inline]] constexpr

TURNOUT_MUTANT_INLINE bool is_active(int number, unsigned char kind) {
  if (std::is_constant_evaluated()) return false;
  reached[number] = kind;
  return active == number;
}
TURNOUT_MUTANT_INLINE bool kept(int number) { return !is_active(number, 1); }

struct Site {
  int number;
};
TURNOUT_MUTANT_INLINE Site at(int number) { return {number}; }
template <class L>
struct Left {
  L value;
  int number;
};
template <class T>
inline constexpr bool kIsIndex = std::is_integral_v<T> || std::is_enum_v<T> || std::is_pointer_v<T>;

#define TURNOUT_MUTANT_OPERATOR(op, flipped)                            \
  template <class L>                                                    \
  TURNOUT_MUTANT_INLINE Left<L> operator op(L left, Site site) {        \
    return {left, site.number};                                         \
  }                                                                     \
  template <class L, class R>                                           \
  TURNOUT_MUTANT_INLINE bool operator op(Left<L> left, R right) {       \
    constexpr unsigned char kKind = kIsIndex<L> && kIsIndex<R> ? 1 : 2; \
    if (is_active(left.number, kKind)) return left.value flipped right; \
    TURNOUT_MUTANT_BOUND(op)                                            \
    return left.value op right;                                         \
  }
#define TURNOUT_MUTANT_BOUND(op)
TURNOUT_MUTANT_OPERATOR(==, !=)
TURNOUT_MUTANT_OPERATOR(!=, ==)
#undef TURNOUT_MUTANT_BOUND
#define TURNOUT_MUTANT_BOUND(op) \
  if (is_active(left.number + 1, kKind)) return left.value op right != (left.value == right);
TURNOUT_MUTANT_OPERATOR(<, >=)
TURNOUT_MUTANT_OPERATOR(<=, >)
TURNOUT_MUTANT_OPERATOR(>, <=)
TURNOUT_MUTANT_OPERATOR(>=, <)
#undef TURNOUT_MUTANT_BOUND
#undef TURNOUT_MUTANT_OPERATOR
#undef TURNOUT_MUTANT_INLINE

}  // namespace turnout_mutants
