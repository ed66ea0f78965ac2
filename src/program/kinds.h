// The table of operations: for each kind its name in texts, and how many operands, which results, attributes and
// regions it has. Parser, printer and checks all read it. Constant data; everything is thread-safe.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "src/base/types.h"
#include "src/program/program.h"

namespace axccl::program {

enum class AttrType : uint8_t {
  kNumber,      // int64_t, not negative
  kList,        // Ints, none negative
  kSignedList,  // Ints
  kGroups,      // Groups of ranks; at least one group, none empty
  kPairs,       // Groups of two ranks each: source, target
  kFold,        // Combine: add, mul, max, min, and, or, xor
  kDirection,   // Direction
  kLiteral,     // Literal of the type of the first result
};

struct AttrInfo {
  Attr attr;
  std::string_view name;
  AttrType type;
};

enum class Results : uint8_t { kNone, kOne, kOnePerOperand, kOnePerOperandButLast, kAny };

inline constexpr int kAnyNumber = std::numeric_limits<int>::max();

struct KindInfo {
  OpKind kind;
  std::string_view name;
  int least_operands;
  int most_operands;
  Results results;
  Attr attribute_list[8];           // ended by kNone
  std::string_view region_list[2];  // ended by ""

  std::span<const Attr> attributes() const;
  std::span<const std::string_view> regions() const;
  // How many results an operation has with so many operands; nullopt if any number will do.
  std::optional<size_t> ResultsOf(size_t operands) const;
};

std::span<const KindInfo> Kinds();
const KindInfo& InfoOf(OpKind kind);
const AttrInfo& InfoOf(Attr attr);
// Null if no kind has that name.
const KindInfo* FindKind(std::string_view name);

// The words for data types, reductions and directions. Values that programs do not have, such as complex numbers, have
// the name "". Find returns false if no value has that name.
std::string_view NameOf(DataType type);
std::string_view NameOf(Combine fold);
std::string_view NameOf(Direction direction);
bool Find(std::string_view name, DataType* type);
bool Find(std::string_view name, Combine* fold);
bool Find(std::string_view name, Direction* direction);

bool IsInteger(DataType type);  // of either sort
bool IsUnsigned(DataType type);

}  // namespace axccl::program
