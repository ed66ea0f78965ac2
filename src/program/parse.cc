#include <algorithm>
#include <limits>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "src/base/text_reader.h"
#include "src/program/element.h"
#include "src/program/kinds.h"
#include "src/program/text.h"

namespace axccl::program {
namespace {

constexpr uint64_t kMaxNumber = std::numeric_limits<int64_t>::max();

bool IsName(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  };
  return !name.empty() && name.size() <= kMaxName && std::all_of(name.begin(), name.end(), fits);
}

std::string Count(int number, const char* noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

class Parser {
 public:
  explicit Parser(std::string_view text) : in_("program text", text) {}

  Result<Program> Run() {
    if (ReadProgram()) return std::move(program_);
    return in_.status();
  }

 private:
  // Reports the failure at `mark`, which is before what has been read last.
  bool FailAt(size_t mark, const std::string& expected) {
    in_.Back(mark);
    return in_.Fail(expected);
  }

  // ---- lists and types ----

  // Reads `[item,item]` by calling read_item.
  template <class ReadItem>
  bool ReadList(ReadItem read_item) {
    if (!in_.Expect("[")) return false;
    if (in_.Try("]")) return true;
    do {
      if (!read_item()) return false;
    } while (in_.Try(","));
    return in_.Expect("]");
  }

  bool ReadInts(uint64_t most, bool is_signed, Ints* ints) {
    return ReadList([&] {
      const bool negative = is_signed && in_.Try("-");
      int64_t number = 0;
      if (!in_.Number(negative ? 1 : 0, most, &number)) return false;
      ints->push_back(negative ? -number : number);
      return true;
    });
  }

  // `size`: the members of each group, or 0 for any number but 0.
  bool ReadGroups(size_t size, Groups* groups) {
    return ReadList([&] {
      const size_t mark = in_.Mark();
      Ints& group = groups->emplace_back();
      if (!ReadInts(static_cast<uint64_t>(program_.ranks - 1), false, &group)) return false;
      if (group.empty()) return FailAt(mark, "expected a list of ranks that is not empty");
      return size == 0 || group.size() == size || FailAt(mark, "expected a pair of ranks, [source,target]");
    });
  }

  template <class T>
  bool ReadWord(std::string_view ends, const char* expected, T* value) {
    const size_t mark = in_.Mark();
    return Find(in_.Until(ends), value) || FailAt(mark, expected);
  }

  bool ReadType(TensorType* type) {
    const size_t mark = in_.Mark();
    if (!ReadWord("[ ,\n", "expected a type, such as f32[2,3] or i1[]", &type->data_type)) return false;
    if (!ReadInts(kMaxNumber, false, &type->dims)) return false;
    if (type->dims.size() > kMaxDims) return FailAt(mark, "expected a type of at most 8 dimensions");
    return IsSmall(*type) || FailAt(mark, "expected a type of less than 2^63 bytes");
  }

  // ---- ids ----

  // Reads the id of an argument, result or operation, behind its '%'. Operands do not see it yet.
  bool ReadNewId(Id* id) {
    const size_t mark = in_.Mark();
    if (!in_.Number(0, std::numeric_limits<Id>::max(), id)) return false;
    return is_visible_.emplace(*id, false).second || FailAt(mark, "expected an id that the part does not have yet");
  }

  void Show(const std::vector<Value>& values) {
    for (const Value& value : values) is_visible_[value.id] = true;
  }
  void Hide(const std::vector<Value>& values) {
    for (const Value& value : values) is_visible_[value.id] = false;
  }

  // Reads ` %1 %2`, as many as there are.
  bool ReadOperands(std::vector<Id>* operands) {
    while (in_.Try(" %")) {
      const size_t mark = in_.Mark();
      Id id = 0;
      if (!in_.Number(0, std::numeric_limits<Id>::max(), &id)) return false;
      const auto found = is_visible_.find(id);
      if (found == is_visible_.end() || !found->second)
        return FailAt(mark, "expected a value that is defined above, in this function or around it");
      operands->push_back(id);
    }
    return !in_.failed();
  }

  // ---- operations ----

  bool ReadLiteral(const TensorType& type, Literal* literal) {
    const size_t mark = in_.Mark(), size = ElementSize(type.data_type);
    const auto read_element = [&] {
      const size_t start = in_.Mark();
      const std::string_view word = in_.Until(",] \n");
      const size_t at = literal->bytes.size();
      literal->bytes.resize(at + size);
      return ParseElement(type.data_type, word, literal->bytes.data() + at) ||
             FailAt(start,
                    "expected an element of type " + std::string(NameOf(type.data_type)) + " in its shortest form");
    };
    // A list begins with '[', which no element does.
    if (!in_.Try("[")) return read_element();
    in_.Back(mark);
    if (!ReadList(read_element)) return false;
    const auto elements = static_cast<uint64_t>(Elements(type));
    if (elements == 1) return FailAt(mark, "expected one element without brackets");
    return literal->bytes.size() / size == elements ||
           FailAt(mark, "expected one element, or a list of " + std::to_string(elements));
  }

  bool ReadAttribute(const Operation& operation, Attribute* attribute) {
    constexpr const char* kEnds = " \n";
    switch (InfoOf(attribute->attr).type) {
      case AttrType::kNumber:
        return in_.Number(0, kMaxNumber, &attribute->value.emplace<int64_t>());
      case AttrType::kList:
        return ReadInts(kMaxNumber, false, &attribute->value.emplace<Ints>());
      case AttrType::kSignedList:
        return ReadInts(kMaxNumber, true, &attribute->value.emplace<Ints>());
      case AttrType::kGroups: {
        const size_t mark = in_.Mark();
        Groups& groups = attribute->value.emplace<Groups>();
        return ReadGroups(0, &groups) &&
               (!groups.empty() || FailAt(mark, "expected a list of groups that is not empty"));
      }
      case AttrType::kPairs:
        return ReadGroups(2, &attribute->value.emplace<Groups>());
      case AttrType::kFold:
        return ReadWord(kEnds, "expected add, mul, max, min, and, or, or xor", &attribute->value.emplace<Combine>());
      case AttrType::kDirection:
        return ReadWord(kEnds, "expected EQ, NE, GE, GT, LE or LT", &attribute->value.emplace<Direction>());
      case AttrType::kLiteral:
        return ReadLiteral(operation.results[0].type, &attribute->value.emplace<Literal>());
    }
    return false;
  }

  // Reads what is left of '=': an id without type, or ids with types.
  bool ReadResults(Operation* operation) {
    if (!ReadNewId(&operation->id)) return false;
    if (in_.Try(" = ")) return true;
    Value value{.id = operation->id, .type = {}};
    for (;;) {
      if (!in_.Expect(" ") || !ReadType(&value.type)) return false;
      operation->results.push_back(std::move(value));
      if (!in_.Try(", %")) return in_.Expect(" = ");
      value = Value{};
      if (!ReadNewId(&value.id)) return false;
    }
  }

  // Compares the numbers of operands and results with the table. `name` is where the operation's name begins.
  bool CheckCounts(size_t name, const Operation& operation) {
    const KindInfo& info = InfoOf(operation.kind);
    const int operands = static_cast<int>(operation.operands.size());
    const std::string of = " of " + std::string(info.name);
    if (operands < info.least_operands || operands > info.most_operands) {
      const bool few = operands < info.least_operands;
      const std::string bound = info.least_operands == info.most_operands ? "" : few ? "at least " : "at most ";
      return in_.Fail("expected " + bound + Count(few ? info.least_operands : info.most_operands, "operand") + of +
                      ", not " + std::to_string(operands));
    }
    const int results = static_cast<int>(operation.results.size());
    const int wanted = static_cast<int>(info.ResultsOf(operation.operands.size()).value_or(operation.results.size()));
    return results == wanted ||
           FailAt(name, "expected " + Count(wanted, "result") + of + ", not " + std::to_string(results));
  }

  // Reads an operation behind its first '%', with its regions.
  bool ReadOperation(int depth, Operation* operation) {
    if (!ReadResults(operation)) return false;
    const size_t name = in_.Mark();
    const KindInfo* const info = FindKind(in_.Word());
    if (info == nullptr) return FailAt(name, "expected an operation, such as add or all_reduce");
    operation->kind = info->kind;
    if (!ReadOperands(&operation->operands) || !CheckCounts(name, *operation)) return false;
    for (const Attr attr : info->attributes()) {
      if (!in_.Expect(" " + std::string(InfoOf(attr).name) + "=")) return false;
      operation->attributes.push_back({.attr = attr, .value = {}});
      if (!ReadAttribute(*operation, &operation->attributes.back())) return false;
    }
    if (!in_.Expect("\n")) return false;
    for (const std::string_view region : info->regions()) {
      if (depth > kMaxNesting) return in_.Fail("expected at most 16 regions within each other");
      if (!Indent(depth) || !in_.Expect(region)) return false;
      Function& function = operation->regions.emplace_back();
      function.name = region;
      if (!in_.Expect("\n") || !ReadFunction(depth + 1, &function)) return false;
    }
    Show(operation->results);
    return true;
  }

  // ---- functions ----

  bool Indent(int depth) { return in_.Expect(std::string(static_cast<size_t>(2 * depth), ' ')); }

  bool ReadArgument(int depth, Value* argument) {
    if (!in_.Expect("%") || !ReadNewId(&argument->id) || !in_.Expect(" ") || !ReadType(&argument->type)) return false;
    argument->donated = depth == 1 && in_.Try(" donated");
    return in_.Expect("\n");
  }

  // Reads the lines of a part (depth 1) or region. Its values end with it.
  bool ReadFunction(int depth, Function* function) {
    while (Indent(depth)) {
      if (function->operations.empty() && in_.Try("argument ")) {
        if (!ReadArgument(depth, &function->arguments.emplace_back())) return false;
        is_visible_[function->arguments.back().id] = true;
      } else if (in_.Try("%")) {
        if (!ReadOperation(depth, &function->operations.emplace_back())) return false;
      } else if (in_.Try("return")) {
        if (!ReadOperands(&function->results) || !in_.Expect("\n")) return false;
        Hide(function->arguments);
        for (const Operation& operation : function->operations) Hide(operation.results);
        return true;
      } else {
        return in_.Fail(function->operations.empty() ? "expected 'argument', '%' of an operation, or 'return'"
                                                     : "expected '%' of an operation, or 'return'");
      }
    }
    return false;
  }

  bool ReadRanks(Part* part) {
    int64_t least = 0;
    const size_t mark = in_.Mark();
    const bool good = ReadList([&] {
      const size_t start = in_.Mark();
      int64_t rank = 0;
      if (!in_.Number(0, static_cast<uint64_t>(program_.ranks - 1), &rank)) return false;
      if (rank < least) return FailAt(start, "expected ranks in ascending order");
      if (!taken_.insert(rank).second) return FailAt(start, "expected a rank that no other part has");
      part->ranks.push_back(rank);
      least = rank + 1;
      return true;
    });
    return good && (!part->ranks.empty() || FailAt(mark, "expected a list of ranks that is not empty"));
  }

  bool ReadPart() {
    Part& part = program_.parts.emplace_back();
    const size_t mark = in_.Mark();
    const std::string_view name = in_.Word();
    if (!IsName(name)) return FailAt(mark, "expected the name of a part ([a-zA-Z0-9_.-], at most 64 characters)");
    part.function.name = name;
    if (!names_.insert(part.function.name).second) return FailAt(mark, "expected a name that no other part has");
    is_visible_ = {};  // not clear(), which takes the time of the largest part so far
    return in_.Expect(" on ") && ReadRanks(&part) && in_.Expect("\n") && ReadFunction(1, &part.function);
  }

  bool ReadProgram() {
    if (!in_.Expect("axccl-program " + std::to_string(kTextVersion) + "\n")) return false;
    if (!in_.Expect("ranks ") || !in_.Number(1, kMaxRanks, &program_.ranks) || !in_.Expect("\n")) return false;
    do {
      if (!in_.Expect("part ") || !ReadPart()) return false;
    } while (!in_.AtEnd());
    return true;
  }

  TextReader in_;
  Program program_;
  std::unordered_map<Id, bool> is_visible_;  // of each id of the part: whether operands may name it now
  std::unordered_set<int64_t> taken_;        // ranks
  std::unordered_set<std::string> names_;    // of parts
};

}  // namespace

Result<Program> Parse(std::string_view text) { return Parser(text).Run(); }

}  // namespace axccl::program
