// The names of StableHLO's operations and attributes, and what they are in a program. Constant data.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "src/program/program.h"
#include "src/program/stablehlo/tree.h"

namespace axccl::program::stablehlo {

// Of `stablehlo.add`, `mhlo.copy`; false for those that programs do not have.
bool FindKind(std::string_view name, OpKind* kind);
// Of an operation with its attributes: `has_dynamic_root` makes another one of it.
bool FindKind(const Op& op, OpKind* kind);
// Why an operation of that name is refused, and which are supported.
std::string RefusedOp(std::string_view name);

// Where an attribute of a program is in StableHLO: an attribute, or a field of one.
struct Source {
  OpKind kind;
  Attr attr;
  std::string_view key;
  std::string_view field;  // "" if it is the attribute itself
};
std::span<const Source> Sources();

// Whether an operation may have the attribute. Those without meaning here are ignored: `mhlo.*`, `jax.*`,
// `sdy.sharding`, `result_layout`, `xla_shape`, and what docs/stablehlo.md lists for the operation.
bool MayHave(OpKind kind, std::string_view key);
bool IsIgnored(std::string_view key);
// Why the attribute of `owner`, whose own ones are `keys`, is refused.
std::string RefusedAttribute(std::string_view owner, std::string_view key, std::string_view keys);
// The attributes that an operation may have, for RefusedAttribute: "dimensions, ..."
std::string KeysOf(OpKind kind);

}  // namespace axccl::program::stablehlo
