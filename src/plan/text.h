// The canonical text form of a schedule, and its hash. docs/plan-format.md explains the form to authors of plans.
//
// Each schedule has one text, and each text one schedule: Parse accepts exactly what Print writes, so Print(Parse(t))
// == t for every text it accepts, and Parse(Print(s)) == s for every schedule that meets the verifier's structure rules
// (fields an operation does not use are zero). Lines end in '\n', words are separated by one space, numbers are decimal
// without sign or leading zeros. Version 2 is for schedules with slices, and version 1 for all others:
//
//   axccl-plan 2                                version of the form
//   algorithm ring                              [a-z0-9_-], at most 32 characters
//   kind all_reduce                             contract.h
//   ranks 4
//   root 0
//   machines 0 0 1 1                            of each rank; only for algorithms that depend on the placement
//   parts 4
//   slices 2                                    in version 2 only, as the next line and the last two operations
//   produced yes                                or no
//   lanes 1
//   slots 3
//   endpoints 2
//   direct no                                   or yes
//   inline 0 - 1                                inline_endpoint, one word an entry, '-' for -1
//   rank 0 lane 0                               once for every rank and lane, in order; then its operations:
//   #0 signal 1 e0                              operation id; destination rank, `all`, or the own rank; endpoint
//   #1 wait 3 e0 v1                             source rank, endpoint, value; tokens name their lane: `wait 0 l1 e0 v1`
//   #2 copy slot[0].1 out[2].0.3 <- in[0].0.3   destinations <- source
//   #3 reduce finish out[0].0.1:2 <- in[0].0.1:2 slot[3].0:2
//   #4 reduce slot[all].1 <- slot[all].1        slots of all ranks
//   #5 nop
//   #6 await 1                                  input chunk
//   #7 notify 7 at 2                            output chunk, and its owner unless that is the own rank
//
// An operand is in[rank].block.part, out[rank].block.part, slot[rank].slot or slot[all].slot, followed by `:parts` when
// it spans more than one. Functions are pure and thread-safe. Parse accepts untrusted text: it allocates in proportion
// to the text only, and what it returns is well-formed but not verified.
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/plan/plan.h"
#include "src/plan/schedule.h"

namespace axccl::plan {

inline constexpr int kTextVersion = 1, kSlicedTextVersion = 2;
inline constexpr size_t kMaxAlgorithmName = 32;

// Whether the text form accepts `name` as the name of an algorithm.
bool IsAlgorithmName(std::string_view name);

std::string Print(const Schedule& schedule);
// Prints one operation as its line of the text, without '\n'. `rank` and `lane` are those that it belongs to.
std::string Print(const Op& op, int rank, int lane);

// Returns kInvalidArgument with the line and column of the first character that does not fit.
Result<Schedule> Parse(std::string_view text);

// XXH3's 128-bit hash of a text.
Hash HashOf(std::string_view text);

}  // namespace axccl::plan
