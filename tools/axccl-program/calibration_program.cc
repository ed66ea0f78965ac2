#include "tools/axccl-program/calibration_program.h"

#include <algorithm>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>

#include "src/program/facts.h"
#include "src/program/kinds.h"
#include "src/program/simulate/work.h"
#include "src/program/text.h"

namespace axccl::tools {

using program::Ints;
using program::Operation;
using program::OpKind;

namespace {

// Operations of a block take turns with that many sets of operands, and as many results are kept: in a step, neither
// the operands nor the memory of the result are those of the operation before.
constexpr int kOperandSets = 4;

struct Size {
  int64_t rows, columns;
  int count;  // of operations in a block, which should be long enough for the ranks' differences not to matter
};
constexpr Size kSizes[] = {{4, 4, 1000}, {32, 32, 200}, {128, 128, 40}, {512, 512, 8}, {1024, 1024, 4}};

// `@`: the rows and columns; `$`: columns and rows; `^`: twice the rows. Words: x, y of f32, n, m of i32, p of i1 are
// of that shape; s, i, j are scalars of f32 and i32, r is a row, c a column. Several lines take turns.
struct LocalOperation {
  const char* name;
  std::vector<const char*> lines;
};

const std::vector<LocalOperation>& LocalOperations() {
  static const std::vector<LocalOperation> kAll = {
      {"abs", {"f32[@] = abs x"}},
      {"add", {"f32[@] = add x y"}},
      {"and", {"i32[@] = and n m"}},
      {"broadcast_in_dim",
       {"f32[@] = broadcast_in_dim s dims=[]", "f32[@] = broadcast_in_dim r dims=[1]",
        "f32[@] = broadcast_in_dim c dims=[0]"}},
      {"clamp", {"f32[@] = clamp s x s"}},
      {"compare", {"i1[@] = compare x y direction=LT"}},
      {"concatenate", {"f32[^] = concatenate x y dim=0"}},
      {"convert", {"f64[@] = convert x", "f32[@] = convert n"}},
      {"copy", {"f32[@] = copy x"}},
      {"cosine", {"f32[@] = cosine x"}},
      {"divide", {"f32[@] = divide x y"}},
      {"dynamic_slice", {"f32[@] = dynamic_slice x i j sizes=[@]"}},
      {"dynamic_update_slice", {"f32[@] = dynamic_update_slice x y i j"}},
      {"exponential", {"f32[@] = exponential x"}},
      {"floor", {"f32[@] = floor x"}},
      {"iota", {"f32[@] = iota dim=0"}},
      {"is_finite", {"i1[@] = is_finite x"}},
      {"log", {"f32[@] = log x"}},
      {"maximum", {"f32[@] = maximum x y"}},
      {"minimum", {"f32[@] = minimum x y"}},
      {"multiply", {"f32[@] = multiply x y"}},
      {"negate", {"f32[@] = negate x"}},
      {"not", {"i32[@] = not n"}},
      {"or", {"i32[@] = or n m"}},
      {"pad", {"f32[^] = pad x s low=[0,0] high=[#,0] interior=[0,0]"}},
      {"power", {"f32[@] = power x y"}},
      {"reduce", {"f32[%] = reduce x s fold=add dims=[0]", "f32[#] = reduce x s fold=add dims=[1]"}},
      {"remainder", {"f32[@] = remainder x y"}},
      {"reshape", {"f32[$] = reshape x"}},
      {"reverse", {"f32[@] = reverse x dims=[0]"}},
      {"rsqrt", {"f32[@] = rsqrt x"}},
      {"select", {"f32[@] = select p x y"}},
      {"sign", {"f32[@] = sign x"}},
      {"sine", {"f32[@] = sine x"}},
      {"slice", {"f32[@] = slice x starts=[0,0] limits=[@] strides=[1,1]"}},
      {"sqrt", {"f32[@] = sqrt x"}},
      {"subtract", {"f32[@] = subtract x y"}},
      {"tanh", {"f32[@] = tanh x"}},
      {"transpose", {"f32[$] = transpose x dims=[1,0]"}},
      {"xor", {"i32[@] = xor n m"}},
  };
  return kAll;
}

// How the matrices are written: left [batch,rows,terms] and right [batch,terms,columns], or one of them turned: right
// [batch,columns,terms], as a gradient meets weights, or left [batch,terms,rows], as inputs meet a gradient.
enum class Turned { kNone, kLeft, kRight };
struct ProductShape {
  int64_t batch, rows, terms, columns;
  Turned turned;
  int count;
};
// Each of the three matrices is the largest of some shape and the smallest of another, some of them far larger than
// what a core has cache for.
constexpr ProductShape kProductShapes[] = {
    {1, 16, 16, 16, Turned::kNone, 200},   {16, 32, 16, 32, Turned::kRight, 20},
    {1, 64, 64, 64, Turned::kNone, 60},    {8, 64, 32, 64, Turned::kRight, 12},
    {8, 64, 64, 32, Turned::kLeft, 12},    {1, 128, 128, 128, Turned::kRight, 20},
    {1, 512, 64, 512, Turned::kRight, 4},  {1, 64, 1024, 256, Turned::kRight, 4},
    {1, 1024, 256, 64, Turned::kNone, 4},  {1, 256, 1024, 64, Turned::kLeft, 4},
    {1, 256, 256, 256, Turned::kNone, 4},  {1, 128, 512, 256, Turned::kLeft, 4},
    {1, 512, 256, 128, Turned::kNone, 4},  {1, 512, 128, 256, Turned::kRight, 4},
    {1, 16, 1024, 1024, Turned::kNone, 4}, {1, 1024, 1024, 16, Turned::kRight, 4},
    {1, 1024, 16, 1024, Turned::kLeft, 4}, {1, 256, 256, 1024, Turned::kRight, 2},
    {1, 1024, 256, 256, Turned::kLeft, 2}, {1, 512, 512, 512, Turned::kNone, 1}};
constexpr ProductShape kSlowShapes[] = {{1, 64, 64, 64, Turned::kNone, 1}};  // of types that the reference multiplies

struct CallSize {
  int64_t elements;  // of the larger one of operand and result, at most
  int count;
};
constexpr CallSize kCallSizes[] = {{64, 60}, {4096, 40}, {65536, 12}, {524288, 4}, {2097152, 2}};

std::string DimsText(const Ints& dims) {
  std::string text;
  for (const int64_t dim : dims) text += (text.empty() ? "" : ",") + std::to_string(dim);
  return text;
}

class Maker {
 public:
  explicit Maker(int ranks) : ranks_(ranks) {}

  CalibrationProgram Make() {
    Locals();
    Products("f32", kProductShapes);
    Products("f64", kProductShapes);
    Products("bf16", kSlowShapes);
    Products("i32", kSlowShapes);
    for (int group = 2; group <= ranks_; ++group) {
      if (ranks_ % group == 0) Calls(group);
    }
    std::string text = "axccl-program 1\nranks " + std::to_string(ranks_) + "\npart main on [";
    for (int rank = 0; rank < ranks_; ++rank) text += (rank == 0 ? "" : ",") + std::to_string(rank);
    CalibrationProgram made{program::Parse(text + "]\n" + arguments_ + lines_ + "  return\n").value(), {}, results_};
    made.blocks = std::move(blocks_);
    for (size_t i = 0; i < blocks_of_.size(); ++i) Describe(made.program.parts[0].function, i, &made.blocks[i]);
    return made;
  }

 private:
  // One of that type; those of other sets are other ones.
  std::string Argument(const std::string& type, int set = 0) {
    const auto [known, added] = argument_of_.emplace(std::pair(type, set), "");
    if (added) {
      known->second = "%" + std::to_string(next_++);
      arguments_ += "  argument " + known->second + " " + type + "\n";
    }
    return known->second;
  }

  // `name`: the type of the block's results and what gives them. A line without a type has no result.
  void Line(const std::string& line, bool has_result = true) {
    lines_ += "  %" + std::to_string(next_++) + " " + line + "\n";
    results_ += has_result ? 1 : 0;
  }

  void Block(const CalibrationBlock& block, const std::vector<std::string>& lines) {
    std::string all;
    for (int rank = 0; rank < ranks_; ++rank) all += (rank == 0 ? "" : ",") + std::to_string(rank);
    Line(ranks_ == 1 ? "f32[] = copy " + Argument("f32[]")
                     : "f32[] = all_reduce " + Argument("f32[]") + " fold=add groups=[[" + all + "]] channel=1");
    blocks_.push_back(block);
    blocks_.back().begin = results_ - 1;
    blocks_of_.push_back(next_);
    std::vector<uint32_t> kept;
    for (int i = 0; i < block.count; ++i) {
      if (block.measures != Measures::kCall) kept.push_back(next_);
      for (size_t part = 0; part < (block.kind == OpKind::kSend ? 2 : 1); ++part) {
        const size_t turn = block.kind == OpKind::kSend ? part : static_cast<size_t>(i) % lines.size();
        Line(lines[turn], lines[turn][0] != '=');
      }
      if (kept.size() > static_cast<size_t>(kOperandSets)) Free(kept[kept.size() - 1 - kOperandSets]);
    }
    blocks_.back().end = results_ - 1;
    for (size_t i = kept.size() - std::min(kept.size(), static_cast<size_t>(kOperandSets)); i < kept.size(); ++i)
      Free(kept[i]);
  }

  // Takes next to no time. Until then, the memory of the value is not that of the next result.
  void Free(uint32_t id) { Line("= free %" + std::to_string(id), false); }

  std::string Filled(const std::string& line, const Size& size, int set) {
    const std::string shape = DimsText({size.rows, size.columns}), turned = DimsText({size.columns, size.rows});
    const std::map<char, std::string> words = {{'@', shape},
                                               {'$', turned},
                                               {'^', DimsText({2 * size.rows, size.columns})},
                                               {'#', std::to_string(size.rows)},
                                               {'%', std::to_string(size.columns)}};
    const std::map<std::string, std::string> operands = {{"x", "f32[" + shape + "]"},
                                                         {"y", "f32[" + shape + "] "},
                                                         {"n", "i32[" + shape + "]"},
                                                         {"m", "i32[" + shape + "] "},
                                                         {"p", "i1[" + shape + "]"},
                                                         {"s", "f32[]"},
                                                         {"i", "i32[]"},
                                                         {"j", "i32[]"},
                                                         {"r", "f32[" + words.at('%') + "]"},
                                                         {"c", "f32[" + words.at('#') + "]"}};
    std::string filled;
    for (size_t at = 0; at < line.size();) {
      const size_t end = std::min(line.find(' ', at), line.size());
      const std::string word = line.substr(at, end - at);
      if (const auto operand = operands.find(word); operand != operands.end()) {
        filled += Operand(operand->second, set);
      } else {
        for (const char c : word) filled += words.contains(c) ? words.at(c) : std::string(1, c);
      }
      filled += end < line.size() ? " " : "";
      at = end + 1;
    }
    return filled;
  }

  // A blank behind the type stands for a second argument of that type.
  std::string Operand(const std::string& type, int set) {
    return type.back() != ' ' ? Argument(type, set) : Argument(type.substr(0, type.size() - 1), kOperandSets + set);
  }

  void Locals() {
    for (const LocalOperation& local : LocalOperations()) {
      for (const Size& size : kSizes) {
        std::vector<std::string> lines;
        for (int set = 0; set < std::min(size.count, kOperandSets); ++set) {
          for (const char* const line : local.lines) lines.push_back(Filled(line, size, set));
        }
        Block({Measures::kOperation, program::FindKind(local.name)->kind, DataType::kFloat32, 0, size.count}, lines);
      }
    }
  }

  void Products(const std::string& type, std::span<const ProductShape> shapes) {
    DataType data_type{};
    program::Find(type, &data_type);
    for (const ProductShape& s : shapes) {
      const bool turns_left = s.turned == Turned::kLeft, turns_right = s.turned == Turned::kRight;
      const Ints left = turns_left ? Ints{s.batch, s.terms, s.rows} : Ints{s.batch, s.rows, s.terms};
      const Ints right = turns_right ? Ints{s.batch, s.columns, s.terms} : Ints{s.batch, s.terms, s.columns};
      CalibrationBlock block{Measures::kProduct, OpKind::kDotGeneral, data_type, 0, s.count};
      block.batches = static_cast<double>(s.batch);
      std::vector<std::string> lines;
      for (int set = 0; set < std::min(s.count, kOperandSets); ++set)
        lines.push_back(type + "[" + DimsText({s.batch, s.rows, s.columns}) + "] = dot_general " +
                        Argument(type + "[" + DimsText(left) + "]", set) + " " +
                        Argument(type + "[" + DimsText(right) + "]", kOperandSets + set) +
                        " lhs_batching_dims=[0] rhs_batching_dims=[0] lhs_contracting_dims=[" +
                        (turns_left ? "1" : "2") + "] rhs_contracting_dims=[" + (turns_right ? "2]" : "1]"));
      Block(block, lines);
    }
  }

  void Calls(int group) {
    std::string groups, pairs;
    for (int first = 0; first < ranks_; first += group) {
      groups += first == 0 ? "[" : ",[";
      for (int i = 0; i < group; ++i) {
        groups += (i == 0 ? "" : ",") + std::to_string(first + i);
        pairs += (pairs.empty() ? "[" : ",[") + std::to_string(first + i) + "," +
                 std::to_string(first + (i + 1) % group) + "]";
      }
      groups += "]";
    }
    const auto call = [&](const char* name, bool operand_cut, bool result_cut, const std::string& attributes) {
      for (const CallSize& size : kCallSizes) {
        const int64_t cut = size.elements / group, whole = cut * group;
        const auto type = [&](bool is_cut) { return "f32[" + std::to_string(is_cut ? cut : whole) + "]"; };
        Block({Measures::kCall, program::FindKind(name)->kind, DataType::kFloat32, group, size.count},
              {type(result_cut) + " = " + name + " " + Argument(type(operand_cut)) + attributes});
      }
    };
    const std::string of_groups = " groups=[" + groups + "] channel=1";
    call("all_gather", true, false, " dim=0" + of_groups);
    call("all_reduce", false, false, " fold=add" + of_groups);
    call("all_to_all", false, false, " split_dim=0 concat_dim=0" + of_groups);
    call("collective_broadcast", false, false, of_groups);
    call("collective_reduce", false, false, " fold=add" + of_groups);
    // All pairs are one group of it.
    if (group == ranks_) call("collective_permute", false, false, " pairs=[" + pairs + "] channel=1");
    call("reduce_scatter", false, true, " fold=add dim=0" + of_groups);
    if (group == 2) Messages(pairs);
  }

  void Messages(const std::string& pairs) {
    for (const CallSize& size : kCallSizes) {
      const std::string type = "f32[" + std::to_string(size.elements) + "]", with = "pairs=[" + pairs + "] channel=1";
      Block({Measures::kCall, OpKind::kSend, DataType::kFloat32, 2, size.count},
            {"= send " + Argument(type) + " " + with, type + " = recv " + with});
    }
  }

  // What the operations of the block do, on average.
  void Describe(const program::Function& function, size_t number, CalibrationBlock* block) {
    if (index_.empty()) {
      types_ = program::TypesOf(function);
      for (size_t i = 0; i < function.operations.size(); ++i) index_[function.operations[i].id] = i;
    }
    size_t next = index_.at(blocks_of_[number]);
    for (int i = 0; i < block->count; ++i, ++next) {
      while (function.operations[next].kind == OpKind::kFree) ++next;
      const Operation& operation = function.operations[next];
      std::vector<const program::TensorType*> operands;
      for (const program::Id id : operation.operands) operands.push_back(types_.Find(id));
      if (block->measures == Measures::kCall) {
        block->bytes = program::BytesOf(*operands[0]);
        for (const program::Value& result : operation.results)
          block->bytes = std::max(block->bytes, program::BytesOf(result.type));
        return;
      }
      const program::Work work = program::WorkOf(operation, operands);
      block->bytes += (work.read + work.written) / block->count;
      block->flops += work.flops / block->count;
      if (block->measures != Measures::kProduct) continue;
      block->matrix_bytes = {program::BytesOf(*operands[0]), program::BytesOf(*operands[1]), work.written};
    }
  }

  const int ranks_;
  uint32_t next_ = 0;                                               // ID
  std::map<std::pair<std::string, int>, std::string> argument_of_;  // by type and set
  std::string arguments_, lines_;
  size_t results_ = 0;
  std::vector<CalibrationBlock> blocks_;
  std::vector<uint32_t> blocks_of_;  // the ID of each one's first operation
  program::IdTable<const program::TensorType*> types_;
  std::unordered_map<program::Id, size_t> index_;
};

}  // namespace

CalibrationProgram MakeCalibration(int ranks) { return Maker(ranks).Make(); }

}  // namespace axccl::tools
