// What random programs compute on one rank: the functions of a part while they are being written, and random local
// operations in them that pass Check.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "src/program/program.h"
#include "tests/harness/random.h"

namespace axccl::program {

// Sizes are 0 to 7, and tensors small.
TensorType RandomType(harness::Random* random);
// A fold that the elements have.
Combine RandomFold(DataType type, harness::Random* random);
template <class T>
void Shuffle(std::vector<T>* items, harness::Random* random) {
  for (size_t i = items->size(); i > 1; --i) std::swap((*items)[i - 1], (*items)[random->Below(i)]);
}

// Writes a part, at the end of the innermost function that is open.
class PartMaker {
 public:
  PartMaker(std::string name, Ints ranks, harness::Random* random);

  // Opens a function within the current one, which sees that one's values.
  std::vector<Value> Open(const std::string& name, const std::vector<TensorType>& arguments, bool may_donate);
  // Ends it.
  Function Close(const std::vector<Id>& results);
  Part End();

  std::vector<Value> Emit(OpKind kind, std::vector<Id> operands, const std::vector<TensorType>& results,
                          std::vector<Attribute> attributes = {}, std::vector<Function> regions = {});
  // A random local operation.
  void Compute();
  // Frees what may be freed.
  void Free();
  // A value of that type: one that there is, or a new one, mostly not the same on all ranks.
  Id Find(const TensorType& type);
  Id Constant(DataType type, int64_t value);
  // Of the values that there are.
  const Value& Pick() { return bodies_.back().visible[random_->Below(bodies_.back().visible.size())]; }
  // The arguments of the part without dimensions and of that type.
  std::vector<Id> SharedArguments(DataType type) const;
  const Ints& ranks() const { return part_.ranks; }

 private:
  struct Body {
    Function function;
    std::vector<Value> visible;
    std::vector<Id> own;  // what it may free
  };

  Id NewId() { return next_id_ += static_cast<Id>(1 + random_->Below(2)); }
  Id Make(const TensorType& type);
  Id MakeByOperations(const TensorType& type);
  void ComputeUnary(const Value& x);
  void ComputeBinary(const Value& x);
  void ComputeOfThree(const Value& x);
  void Reshape(const Value& x);
  void Cut(const Value& x);
  void Extend(const Value& x);
  void Slide(const Value& x);
  void Index(const Value& x);
  void Multiply(const Value& x);
  void Reduce(const Value& x);
  void Generate();

  harness::Random* const random_;
  Part part_;
  std::vector<Body> bodies_;
  Id next_id_ = 0;
};

}  // namespace axccl::program
