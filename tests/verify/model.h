// A second check of schedules, for the tests of the verifier: slow, simple, and sharing no code with it except the
// types of the plan.
//
// Happens-before is the transitive closure of an explicit graph of three turns. The user is a node that overwrites all
// buffers of a rank before and after each operation. With slices, it is also a node that writes an input chunk before
// that is awaited, and one that reads an output chunk after it is notified. Races are found by comparing all pairs of
// accesses to a place. Values are computed in one order, once for each mixture of in-place ranks, as counts of
// contributions. For groups of up to 16 ranks. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/plan/schedule.h"
#include "tests/verify/lowered.h"

namespace axccl::verify {

class Model {
 public:
  explicit Model(const plan::Schedule& schedule);

  // Returns what is wrong: a wait that is never satisfied, an unordered conflict, a read of an inline slot that no
  // signal publishes, a wrong output, ranks that may get different bits, a barrier that does not hold. Empty if nothing
  // is.
  std::string FindFault();

  // Whether `other`, a schedule of the same data operations, orders every conflicting pair of this one in the same way:
  // then every run of it is equivalent to some run of this one. `why` gets the first pair that it does not.
  bool KeepsOrderOf(Model* other, std::string* why);

  // Whether every rank's end of a turn comes after every rank's beginning of it (plan::Plan::complete).
  bool Complete() const;
  // Whether all outputs are left folds in order of rank (plan::Plan::group_order).
  bool InGroupOrder();

  // What every data operation wrote, by id, out of place; ignores orders of summation.
  std::map<uint32_t, std::vector<uint64_t>> Results();

 private:
  static constexpr int kTurns = 3;

  struct Node {
    uint64_t name = 0;  // equal for the same operation of the same turn in another schedule
    const plan::Op* op = nullptr;
    int turn = 0, rank = 0, lane = 0;
    int chunk = -1;         // of the user alone: the chunk that it touches; -1: all buffers
    bool consumes = false;  // likewise: it reads an output chunk
  };
  struct Touch {
    uint64_t place;
    int node;
    bool write;
  };
  struct Value {
    uint64_t counts = 0;  // four bits per rank: how often its contribution is included
    int block = 0, part = 0;
    int finished = 0;
    int expression = 0;  // 0 = undefined or garbage
    bool raw = false;    // an input as the user left it
    friend bool operator==(const Value&, const Value&) = default;
  };
  using Memory = std::map<uint64_t, Value>;

  int AddNode(const plan::Op* op, int turn, int rank, int lane, uint64_t name);
  void AddEdge(int from, int to) { after_[from].push_back(to); }
  void BuildGraph();
  void BuildTurn(int turn);
  void Close();
  bool Before(int a, int b) const { return (before_[b][a / 64] >> (a % 64)) & 1; }

  uint64_t PlaceOf(const plan::Operand& o, int part, int turn, int lane, uint32_t in_place) const;
  std::vector<Touch> Touches(uint32_t in_place) const;
  void AddUserTouches(int node, uint32_t in_place, std::vector<Touch>* touches) const;
  void AddChunkTouches(int node, uint32_t in_place, std::vector<Touch>* touches) const;
  void AddChunkUsers(size_t first, int turn);
  int LaneOf(const plan::Operand& o, int lane) const;
  template <class F>
  void ForEachInline(int node, F f) const;
  void AddPublications(int node, std::vector<Touch>* touches) const;
  std::map<uint32_t, plan::Op> DataOps() const;
  std::string FindRace(uint32_t in_place) const;
  std::string FindMixedWays() const;
  std::string FindUnpublished() const;
  std::string FindWrongOutput(uint32_t in_place);
  std::string FindWrongBits(const Memory& memory) const;
  Memory Execute(uint32_t in_place, std::map<uint32_t, std::vector<uint64_t>>* results);
  void ExecuteOp(const Node& node, uint32_t in_place, Memory* memory,
                 std::map<uint32_t, std::vector<uint64_t>>* results);
  Value Load(const Memory& memory, const plan::Operand& o, int part, const Node& node, uint32_t in_place, bool store);
  // `mark`: differs for folds whose order is not defined, whose bits may always differ; 0 for others.
  Value Combined(const std::vector<Value>& terms, int mark);
  int Expression(const std::vector<int>& terms);
  bool IsExpected(const Value& v, int rank, int block, int part) const;
  std::string NameOf(int node) const;

  const Lowered lowered_;
  const plan::Schedule& s_;
  const bool joined_;  // turns are operations, each between two user nodes
  std::vector<Node> nodes_;
  std::vector<std::vector<int>> after_;
  std::vector<std::vector<uint64_t>> before_;
  std::vector<int> order_;              // nodes in a possible order; shorter than nodes_ if there is a deadlock
  std::vector<std::vector<int>> user_;  // [turn][rank] the user's node before that turn; the last is after all turns
  std::vector<int> last_;               // [rank * lanes + lane] its latest node so far, during construction
  std::map<std::vector<int>, int> expressions_;
  std::string fault_;
};

}  // namespace axccl::verify
