#include "tests/api/example_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <sstream>

namespace axccl::test {
namespace {

// Words, numbers and punctuation, one at a time; "" at the end.
class Tokens {
 public:
  explicit Tokens(const std::string& text) {
    for (size_t i = 0; i < text.size();) {
      const auto is_word = [&text](size_t at) {
        return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_');
      };
      size_t end = i + 1;
      if (is_word(i)) {
        while (is_word(end)) ++end;
      } else if (text.compare(i, 2, "->") == 0) {
        end = i + 2;
      }
      if (!std::isspace(static_cast<unsigned char>(text[i]))) tokens_.push_back(text.substr(i, end - i));
      i = end;
    }
  }

  const std::string& Peek() const { return at_ < tokens_.size() ? tokens_[at_] : end_; }
  std::string Next() { return at_ < tokens_.size() ? tokens_[at_++] : end_; }
  bool Try(const std::string& token) {
    if (Peek() != token) return false;
    ++at_;
    return true;
  }
  void Expect(const std::string& token) {
    EXPECT_EQ(Peek(), token) << "after: " << Before();
    if (!Try(token)) at_ = tokens_.size();
  }
  bool AtWord() const { return !Peek().empty() && std::isalpha(static_cast<unsigned char>(Peek()[0])); }
  int64_t Number() {
    const std::string sign = Try("-") ? "-" : "", digits = Next();
    EXPECT_TRUE(!digits.empty() &&
                std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; }))
        << digits << " is no number, after: " << Before();
    return std::atoll((sign + digits).c_str());
  }

 private:
  std::string Before() const {
    std::string text;
    for (size_t i = at_ < 12 ? 0 : at_ - 12; i < at_; ++i) text += tokens_[i] + " ";
    return text;
  }

  std::vector<std::string> tokens_;
  const std::string end_;
  size_t at_ = 0;
};

std::vector<int64_t> ReadList(Tokens* in) {
  std::vector<int64_t> list;
  in->Expect("{");
  do {
    list.push_back(in->Number());
  } while (in->Try(","));
  in->Expect("}");
  return list;
}

// Reads the content of braces; `depth` dimensions are around them.
void ReadTensor(Tokens* in, size_t depth, Tensor* tensor) {
  in->Expect("{");
  int64_t size = 0;
  tensor->sizes.resize(std::max(tensor->sizes.size(), depth + 1));
  do {
    ++size;
    if (in->Peek() == "{")
      ReadTensor(in, depth + 1, tensor);
    else
      tensor->values.push_back(static_cast<float>(in->Number()));
  } while (in->Try(","));
  in->Expect("}");
  EXPECT_TRUE(tensor->sizes[depth] == 0 || tensor->sizes[depth] == size) << "rows of different lengths";
  tensor->sizes[depth] = size;
}

// Reads up to the ':', which it consumes.
Settings ReadSettings(Tokens* in) {
  Settings settings;
  while (!in->Try(":")) {
    std::string name = in->Next();
    while (in->AtWord()) name.append(" ").append(in->Next());
    if (in->Try("="))
      settings.numbers[name] = in->Number();
    else if (in->Peek() == "{")
      settings.lists[name] = ReadList(in);
    else
      settings.words.push_back(name);
    if (in->Peek() != ":") in->Expect(",");
    if (in->Peek().empty()) break;
  }
  return settings;
}

Operands ReadOperands(Tokens* in) {
  Operands operands;
  if (in->Peek() != "{") return operands;
  do {
    if (in->Try("in")) {
      in->Expect("memory");
      for (const int64_t value : ReadList(in)) operands.memory.push_back(static_cast<float>(value));
    } else {
      ReadTensor(in, 0, &operands.tensors.emplace_back());
    }
  } while (in->Try(","));
  return operands;
}

CallExample ReadCall(const std::string& call, const std::string& text) {
  SCOPED_TRACE(call);
  Tokens in(text);
  CallExample example;
  example.call = call;
  example.settings = ReadSettings(&in);
  while (in.Try("rank")) {
    EXPECT_EQ(in.Number(), static_cast<int64_t>(example.ranks.size())) << "ranks in order";
    RankExample& rank = example.ranks.emplace_back();
    (void)in.Try(",");
    rank.settings = ReadSettings(&in);
    rank.in = ReadOperands(&in);
    if (in.Try("->")) rank.out = ReadOperands(&in);
  }
  EXPECT_EQ(in.Peek(), "");
  EXPECT_EQ(example.settings.numbers["n"], static_cast<int64_t>(example.ranks.size()));
  return example;
}

// The comments' text without the comment marks.
std::string Plain(const std::string& comment) {
  std::istringstream lines(comment);
  std::string text;
  for (std::string line; std::getline(lines, line);)
    text += (line.starts_with(" *") ? line.substr(2) : line.starts_with("/*") ? line.substr(2) : line) + "\n";
  return text;
}

}  // namespace

std::vector<int64_t> Settings::List(const std::string& name) const {
  const auto found = lists.find(name);
  return found == lists.end() ? std::vector<int64_t>() : found->second;
}

bool Settings::Has(const std::string& word) const { return std::find(words.begin(), words.end(), word) != words.end(); }

std::vector<CallExample> ReadCallExamples(const std::string& header) {
  const std::string opening = "\nncclResult_t ", mark = "Example,";
  std::vector<CallExample> examples;
  for (size_t begin = header.find("\n/*"); begin != header.npos; begin = header.find("\n/*", begin + 1)) {
    const size_t end = header.find("*/", begin), example = header.find(mark, begin);
    if (example > end || header.compare(end + 2, opening.size(), opening) != 0) continue;
    const size_t name = end + 2 + opening.size();
    const size_t text = example + mark.size();
    examples.push_back(
        ReadCall(header.substr(name, header.find('(', name) - name), Plain(header.substr(text, end - text))));
  }
  return examples;
}

std::vector<std::vector<int64_t>> ReadLists(const std::string& text) {
  Tokens in(text);
  std::vector<std::vector<int64_t>> lists;
  while (in.Peek() == "{") {
    lists.push_back(ReadList(&in));
    if (!in.Try(",")) break;
  }
  EXPECT_EQ(in.Peek(), "") << text;
  return lists;
}

std::vector<GroupsExample> ReadGroupsExamples(const std::string& header, const std::string& mark) {
  std::vector<GroupsExample> examples;
  const size_t begin = header.find(mark + "\n");
  EXPECT_NE(begin, header.npos) << mark;
  if (begin == header.npos) return examples;
  std::istringstream lines(header.substr(begin + mark.size() + 1));
  const std::string prefix = " *   ", arrow = " -> ";
  for (std::string line; std::getline(lines, line) && line.starts_with(prefix);) {
    const size_t to = line.find(arrow);
    EXPECT_NE(to, line.npos) << line;
    if (to == line.npos) break;
    const size_t groups = to + arrow.size();
    examples.push_back({line.substr(prefix.size(), to - prefix.size()),
                        ReadLists(line.substr(groups, std::min(line.find(" */"), line.size()) - groups))});
  }
  return examples;
}

}  // namespace axccl::test
