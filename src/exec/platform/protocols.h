// How data of small calls may travel between GPU ranks: what the user (NCCL_PROTO) and the devices of all ranks allow.
//
// In NCCL's terms: LL are slots of words that contain flags, LL128 slots of rows that do (kernels/cuda/launch.h), and
// all other calls use Simple, which is always allowed. Plain data, sent as bytes.
#pragma once

#include <cstdint>
#include <string_view>

#include "src/base/status.h"
#include "src/plan/contract.h"

namespace axccl::exec {

struct Protocols {
  uint16_t ll = 0, ll128 = 0;  // a bit for each plan::Kind

  static constexpr uint16_t kAllKinds = (1u << plan::kNumKinds) - 1;

  // NCCL_PROTO: a list of LL, LL128 and Simple, or kind:list;kind:list, as NCCL_ALGO; ^ inverts a list; empty: all.
  // kInvalidArgument names the word that is unknown and lists the known ones.
  static Result<Protocols> Parse(std::string_view text);

  // What both allow.
  Protocols operator&(const Protocols& other) const {
    return {static_cast<uint16_t>(ll & other.ll), static_cast<uint16_t>(ll128 & other.ll128)};
  }
  bool operator==(const Protocols&) const = default;
  bool AllowLl(plan::Kind kind) const { return (ll >> static_cast<int>(kind) & 1) != 0; }
  bool AllowLl128(plan::Kind kind) const { return (ll128 >> static_cast<int>(kind) & 1) != 0; }
};
static_assert(plan::kNumKinds <= 16);

}  // namespace axccl::exec
