// DistIR's model of time (github.com/microsoft/dist-ir, simulator and cost model of its last version), to compare with
// it. A product of (m,k) and (k,n) takes c + (mk + kn) e/D + 2mkn/F; any other local operation c + (bytes of its
// operands)/D + n/F, where n is the number of elements of its first operand; slice, concatenate and reshape take c. An
// all_reduce or all_gather of operands of s bytes by n ranks takes 2s(n-1)/(nB), a message s/B, a broadcast nothing.
// A device does one thing at a time, and a function's inputs are never dropped.
//
// DistIR knows no other collectives; they are an error.
#pragma once

#include "src/program/simulate.h"

namespace axccl::program {

// The defaults are those of DistIR's evaluation with memory (examples/mlp_grid_search.py and its tests): V100 GPUs with
// PyTorch, and links of 25 Gbit/s.
struct DistirMachine {
  double launch_seconds = 1e-5;            // c
  double memory_bytes_per_second = 9e11;   // D
  double flops = 1.4e13;                   // F
  double link_bytes_per_second = 3.125e9;  // B
};

class DistirModel : public Model {
 public:
  explicit DistirModel(const DistirMachine& machine) : machine_(machine) {}
  double LocalSeconds(const Operation& operation, const std::vector<const TensorType*>& operands) const override;
  Result<double> Seconds(const Transfer& transfer) override;
  bool overlaps() const override { return false; }
  bool drops_donated() const override { return false; }

 private:
  const DistirMachine machine_;
};

}  // namespace axccl::program
