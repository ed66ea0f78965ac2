#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "src/program/facts.h"
#include "src/program/simulate/work.h"
#include "src/program/transform.h"

namespace axccl::program {
namespace {

// Moves communication of one part; ids stay as they are.
class OverlapWriter {
 public:
  OverlapWriter(Function function, int64_t bucket_bytes)
      : function_(std::move(function)), bucket_bytes_(bucket_bytes), types_(TypesOf(function_)) {
    for (const Value& argument : function_.arguments) there_[argument.id] = true;
    for (Operation& operation : function_.operations) {
      if (operation.operands.size() == 1 &&
          (operation.kind == OpKind::kAllReduce || operation.kind == OpKind::kReduceScatter))
        reductions_[operation.operands[0]].push_back(&operation);
      if (operation.kind == OpKind::kAllGather) gathers_.push_back(&operation);
    }
  }

  Function Run() {
    std::vector<Operation> after;
    after.reserve(function_.operations.size());
    out_ = &after;
    for (const Value& argument : function_.arguments) ReduceFrom(argument.id);
    for (Operation& operation : function_.operations) {
      if (IsTaken(operation)) continue;
      FlushWhatItNeeds(operation);
      if (IsTaken(operation)) continue;  // a reduction of what a bucket has reduced
      Write(std::move(operation));
      if (operation.kind == OpKind::kAllGather) GatherNext();
    }
    while (!pending_.empty()) Flush(BucketOf(*pending_.front()));
    function_.operations = std::move(after);
    return std::move(function_);
  }

 private:
  bool IsWritten(const Operation& operation) const { return written_.Find(operation.id) != 0; }
  // Whether it has been written, or goes out when its bucket is full, or needed.
  bool IsTaken(const Operation& operation) const {
    return IsWritten(operation) ||
           std::any_of(pending_.begin(), pending_.end(), [&](const Operation* o) { return o->id == operation.id; });
  }

  void Write(Operation&& operation) {
    written_[operation.id] = true;
    std::vector<Id> results;
    for (const Value& result : operation.results) {
      there_[result.id] = true;
      written_[result.id] = true;
      results.push_back(result.id);
    }
    out_->push_back(std::move(operation));
    for (const Id result : results) ReduceFrom(result);
  }

  // The value is there: what reduces it can begin.
  void ReduceFrom(Id value) {
    const auto found = reductions_.find(value);
    if (found == reductions_.end()) return;
    for (Operation* reduction : found->second) {
      if (reduction->kind == OpKind::kReduceScatter) {
        Write(std::move(*reduction));
        continue;
      }
      pending_.push_back(reduction);
      std::vector<const Operation*> bucket = BucketOf(*reduction);
      double bytes = 0;
      for (const Operation* member : bucket) bytes += BytesOf(*types_.Find(member->operands[0]));
      if (bytes >= static_cast<double>(bucket_bytes_)) Flush(std::move(bucket));
    }
  }

  // Those that may be one call.
  std::vector<const Operation*> BucketOf(const Operation& reduction) const {
    std::vector<const Operation*> bucket;
    std::copy_if(pending_.begin(), pending_.end(), std::back_inserter(bucket), [&](const Operation* other) {
      return other->attributes == reduction.attributes &&
             types_.Find(other->operands[0])->data_type == types_.Find(reduction.operands[0])->data_type;
    });
    return bucket;
  }

  void FlushWhatItNeeds(const Operation& operation) {
    for (const Id operand : operation.operands) {
      if (there_.Find(operand) != 0) continue;
      const auto needed = std::find_if(pending_.begin(), pending_.end(),
                                       [&](const Operation* reduction) { return reduction->results[0].id == operand; });
      if (needed != pending_.end()) Flush(BucketOf(**needed));
    }
  }

  void Flush(std::vector<const Operation*> bucket) {
    if (bucket.empty()) return;
    Operation all;
    all.kind = bucket[0]->kind;
    all.id = bucket[0]->id;
    all.attributes = bucket[0]->attributes;
    for (const Operation* member : bucket) {
      all.operands.push_back(member->operands[0]);
      all.results.push_back(member->results[0]);
      pending_.erase(std::find(pending_.begin(), pending_.end(), member));
    }
    Write(std::move(all));
  }

  // The gather after the one that has been written, if what it gathers is there.
  void GatherNext() {
    while (next_gather_ < gathers_.size() && IsWritten(*gathers_[next_gather_])) ++next_gather_;
    if (next_gather_ == gathers_.size()) return;
    Operation& next = *gathers_[next_gather_];
    const bool is_there =
        std::all_of(next.operands.begin(), next.operands.end(), [&](Id operand) { return there_.Find(operand) != 0; });
    if (is_there) Write(std::move(next));
  }

  Function function_;  // what has been written has been moved away, but for its kind and id
  const int64_t bucket_bytes_;
  const IdTable<const TensorType*> types_;                      // those of results stay where they are
  std::unordered_map<Id, std::vector<Operation*>> reductions_;  // by what they reduce
  std::vector<Operation*> gathers_;
  std::vector<const Operation*> pending_;
  size_t next_gather_ = 0;
  IdTable<char> there_, written_;  // as booleans
  std::vector<Operation>* out_ = nullptr;
};

}  // namespace

Result<Transformed> Overlap(Transformed before, int64_t bucket_bytes) {
  if (bucket_bytes < 0)
    return MakeStatus(Code::kInvalidArgument, "transform overlap: a bucket of %lld bytes, must be at least 0",
                      static_cast<long long>(bucket_bytes));
  for (Part& part : before.program.parts) part.function = OverlapWriter(std::move(part.function), bucket_bytes).Run();
  return before;
}

}  // namespace axccl::program
