// NCCL_ALGO and NCCL_PROTO: which algorithms, or protocols, may be chosen for which kind.
//
//   filter = item { ";" item }        later items override earlier ones for the kinds they name
//   item   = [ kind ":" ] list        without a kind: for all kinds
//   list   = [ "^" ] name { "," name }  "^": all but these
//
// Letters may have either case; kinds may be written with or without underscores ("AllReduce", "all_reduce"); blanks
// around words are ignored, and so are items and names that are empty, as in NCCL. Names of algorithms are ours
// (schedule.h) and NCCL's, so that settings written for NCCL are accepted: ring and tree exist here, too, and NCCL's
// other names have no effect. Protocols are ll, ll128 and simple. An immutable value.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/plan/contract.h"

namespace axccl::tune {

class Filter {
 public:
  enum class Names : uint8_t { kAlgorithms, kProtocols };

  // Returns kInvalidArgument, with the unknown word and a list of the known ones, if the text does not parse.
  static Result<Filter> Parse(std::string_view text, Names names = Names::kAlgorithms);

  // Whether the filter lets the algorithm or protocol be chosen for `kind`.
  bool Admits(plan::Kind kind, std::string_view name) const;
  // Whether it does because its list names it, not because the list does not exclude it.
  bool AdmitsByName(plan::Kind kind, std::string_view name) const {
    return Admits(kind, name) && !list_[static_cast<size_t>(kind)].inverted;
  }

 private:
  struct List {
    bool inverted = true;  // so that the empty list admits everything
    std::vector<std::string> names;
  };
  std::array<List, plan::kNumKinds> list_;
};

}  // namespace axccl::tune
