#include "src/tune/filter.h"

#include <algorithm>

#include "src/algo/algo.h"
#include "src/base/format.h"

namespace axccl::tune {

namespace {

// NCCL's names for which there is no algorithm here.
constexpr std::string_view kForeign[] = {"collnetdirect", "collnetchain", "nvlstree", "pat"};

// Converts to lower case, and removes underscores and surrounding blanks.
std::string Normalise(std::string_view word) {
  std::string out;
  const size_t begin = word.find_first_not_of(" \t"), end = word.find_last_not_of(" \t");
  if (begin == std::string_view::npos) return out;
  for (char c : word.substr(begin, end - begin + 1)) {
    if (c != '_') out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

// Without those that are empty.
std::vector<std::string_view> ItemsOf(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    const std::string_view piece = text.substr(begin, end - begin);
    if (!Normalise(piece).empty()) pieces.push_back(piece);
    if (end == std::string_view::npos) return pieces;
    begin = end + 1;
  }
}

// Every protocol, or every algorithm of every kind, in alphabetical order.
const std::vector<std::string_view>& OwnNames(Filter::Names kind) {
  static const std::vector<std::string_view> kProtocols = {"ll", "ll128", "simple"};
  return kind == Filter::Names::kProtocols ? kProtocols : algo::AllAlgorithms();
}

// Returns the name that a word stands for; empty if there is none.
std::string_view FindName(Filter::Names names, std::string_view word) {
  const std::string normal = Normalise(word);
  for (std::string_view name : OwnNames(names)) {
    if (Normalise(name) == normal) return name;
  }
  for (std::string_view name : kForeign) {
    if (names == Filter::Names::kAlgorithms && name == normal) return name;
  }
  return {};
}

Status Unknown(Filter::Names names, std::string_view text, const char* what, std::string_view word,
               const std::string& known) {
  return MakeStatus(Code::kInvalidArgument, "%s='%.*s': unknown %s '%.*s'; known are %s",
                    names == Filter::Names::kProtocols ? "NCCL_PROTO" : "NCCL_ALGO", static_cast<int>(text.size()),
                    text.data(), what, static_cast<int>(word.size()), word.data(), known.c_str());
}

Status UnknownName(Filter::Names names, std::string_view text, std::string_view word) {
  const std::string known = Join(OwnNames(names), ", ");
  if (names == Filter::Names::kProtocols) return Unknown(names, text, "protocol", word, known);
  return Unknown(names, text, "algorithm", word, known + ", and, without effect here, " + Join(kForeign, ", "));
}

Status UnknownKind(Filter::Names names, std::string_view text, std::string_view word) {
  std::string known;
  for (int k = 0; k < plan::kNumKinds; ++k) {
    known.append(known.empty() ? "" : ", ").append(Normalise(plan::KindName(static_cast<plan::Kind>(k))));
  }
  return Unknown(names, text, "collective", word, known);
}

// Returns -1 if there is no such kind.
int KindIndex(std::string_view word) {
  const std::string name = Normalise(word);
  for (int k = 0; k < plan::kNumKinds; ++k) {
    if (Normalise(plan::KindName(static_cast<plan::Kind>(k))) == name) return k;
  }
  return -1;
}

}  // namespace

Result<Filter> Filter::Parse(std::string_view text, Names names) {
  Filter filter;
  for (std::string_view item : ItemsOf(text, ';')) {
    int first = 0, last = plan::kNumKinds - 1;
    if (const size_t colon = item.find(':'); colon != std::string_view::npos) {
      first = last = KindIndex(item.substr(0, colon));
      if (first < 0) return UnknownKind(names, text, item.substr(0, colon));
      item.remove_prefix(colon + 1);
    }
    List list;
    const size_t begin = item.find_first_not_of(" \t");
    list.inverted = begin != std::string_view::npos && item[begin] == '^';
    if (list.inverted) item.remove_prefix(begin + 1);
    for (std::string_view word : ItemsOf(item, ',')) {
      const std::string_view name = FindName(names, word);
      if (name.empty()) return UnknownName(names, text, word);
      list.names.emplace_back(name);
    }
    if (list.names.empty()) return UnknownName(names, text, item);
    for (int k = first; k <= last; ++k) filter.list_[static_cast<size_t>(k)] = list;
  }
  return filter;
}

bool Filter::Admits(plan::Kind kind, std::string_view name) const {
  const List& list = list_[static_cast<size_t>(kind)];
  const bool named = std::find(list.names.begin(), list.names.end(), name) != list.names.end();
  return named != list.inverted;
}

}  // namespace axccl::tune
