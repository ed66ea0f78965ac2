// Replica groups and pairs of a module, as ranks: the rules are those of src/tensor/replica_groups.h.
//
// Functions return false once they have reported a failure to `errors`.
#pragma once

#include "src/program/stablehlo/scanner.h"
#include "src/program/stablehlo/tree.h"
#include "src/tensor/replica_groups.h"

namespace axccl::program::stablehlo {

// Counts what a program takes, in words of about 8 bytes, so that it stays in proportion to the text.
class Budget {
 public:
  explicit Budget(size_t text) : left_((size_t{1} << 20) + 64 * text) {}
  bool Take(size_t words) {
    if (words > left_) return false;
    left_ -= words;
    return true;
  }

 private:
  size_t left_;
};

// mhlo.num_replicas x mhlo.num_partitions; 1 for one that is absent. Where both are, 1 more than the largest id of the
// collectives and meshes: of replicas if they are in the modes cross_replica or cross_replica_and_partition, else of
// partitions. Ids of both are an error.
bool GridOf(const Module& module, Scanner* errors, tensor::Grid* grid);

// The devices of a mesh; 0 if they are too many.
int64_t Devices(const Mesh& mesh);

class Communication {
 public:
  // Keeps the pointers.
  Communication(const Module* module, const tensor::Grid* grid, Budget* budget, Scanner* errors)
      : module_(*module), grid_(*grid), budget_(*budget), errors_(*errors) {}

  // The attributes of a collective.
  bool ReadGroups(const Op& op, Groups* groups);
  bool ReadPairs(const Op& op, Groups* pairs);
  bool ReadChannel(const Op& op, int64_t* channel);

 private:
  bool TakeRanks(const Op& op, size_t words);

  const Module& module_;
  const tensor::Grid& grid_;
  Budget& budget_;
  Scanner& errors_;
};

// What is said where the budget is spent.
bool FailBudget(size_t at, Scanner* errors);

}  // namespace axccl::program::stablehlo
