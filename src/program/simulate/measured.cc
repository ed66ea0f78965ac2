#include "src/program/simulate/measured.h"

#include <algorithm>
#include <string_view>

#include "src/program/facts.h"
#include "src/program/kinds.h"

namespace axccl::program {
namespace {

constexpr double kMostMeasuredSeconds = 1e4, kMostMeasuredBytes = 1e15;
constexpr int kMostMeasuredRanks = 1 << 20;

// A line of words, read from left to right.
class MeasuredWords {
 public:
  MeasuredWords(std::string_view line, const FabricLines& lines) : line_(line), lines_(lines) {}

  std::string_view Next() {
    at_ = next_;
    const size_t blank = line_.find(' ', at_);
    next_ = blank == std::string_view::npos ? line_.size() : blank + 1;
    return at_ > line_.size() ? std::string_view() : line_.substr(at_, blank - at_);
  }
  // The word that was read last is not this.
  Status Fail(const std::string& expected) const { return lines_.Fail(at_, line_.substr(at_), expected); }
  Status Number(double least, double most, double* number, bool whole = false) {
    const std::string_view word = Next();
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), *number);
    const bool is_number = error == std::errc() && end == word.data() + word.size();
    if (is_number && *number >= least && *number <= most &&
        (!whole || *number == static_cast<double>(static_cast<uint64_t>(*number))))
      return Status();
    return Fail((whole ? "a whole number from " : "a number from ") + FigureText(least) + " to " + FigureText(most));
  }
  Status End() {
    if (next_ >= line_.size() && !line_.ends_with(' ')) return Status();
    Next();
    return Fail("the end of the line");
  }

 private:
  std::string_view line_;
  const FabricLines& lines_;
  size_t at_ = 0, next_ = 0;
};

// By name, as those of a file ascend.
bool IsBefore(OpKind a, OpKind b) { return InfoOf(a).name < InfoOf(b).name; }

Status ReadPoint(MeasuredWords* words, MeasuredCurve* curve) {
  MeasuredPoint point{};
  AXCCL_RETURN_IF_ERROR(words->Number(0, kMostMeasuredBytes, &point.bytes));
  if (!curve->empty() && point.bytes <= curve->back().bytes)
    return words->Fail("more than " + FigureText(curve->back().bytes));
  AXCCL_RETURN_IF_ERROR(words->Number(0, kMostMeasuredSeconds, &point.seconds));
  curve->push_back(point);
  return Status();
}

Status ReadStreams(MeasuredWords* words, Measured* measured) {
  double streams = 0;
  AXCCL_RETURN_IF_ERROR(words->Number(1, 2, &streams, true));
  measured->one_stream = streams == 1;
  return Status();
}

Status ReadProduct(MeasuredWords* words, Measured* measured) {
  const std::string_view name = words->Next();
  DataType type{};
  if (!Find(name, &type)) return words->Fail("a data type");
  if (measured->products.contains(type)) return words->Fail("a data type that has no line yet");
  Measured::Product product{};
  AXCCL_RETURN_IF_ERROR(words->Number(0, kMostMeasuredSeconds, &product.seconds));
  for (double* const rate :
       {&product.per_flop, &product.per_left_byte, &product.per_right_byte, &product.per_result_byte})
    AXCCL_RETURN_IF_ERROR(words->Number(0, 1, rate));
  measured->products.emplace(type, product);
  return Status();
}

// The kind that the next word names. `last`: of the line before, if there is one.
Status ReadKind(MeasuredWords* words, bool communicates, const OpKind* last, OpKind* kind) {
  const KindInfo* const info = FindKind(words->Next());
  const std::string what = communicates ? "a collective or send" : "an operation of one rank";
  if (info == nullptr || IsCommunication(info->kind) != communicates || info->kind == OpKind::kRecv ||
      !info->regions().empty())
    return words->Fail(what);
  if (last != nullptr && IsBefore(info->kind, *last))
    return words->Fail(what + " not before " + std::string(InfoOf(*last).name));
  *kind = info->kind;
  return Status();
}

template <class Curves>
auto LastOf(const Curves& curves, OpKind (*kind_of)(const typename Curves::key_type&)) {
  return std::max_element(curves.begin(), curves.end(),
                          [&](const auto& a, const auto& b) { return IsBefore(kind_of(a.first), kind_of(b.first)); });
}

Status ReadOperation(MeasuredWords* words, Measured* measured) {
  OpKind kind{};
  const auto last = LastOf(measured->operations, [](const OpKind& key) { return key; });
  AXCCL_RETURN_IF_ERROR(ReadKind(words, false, last == measured->operations.end() ? nullptr : &last->first, &kind));
  return ReadPoint(words, &measured->operations[kind]);
}

Status ReadCall(MeasuredWords* words, Measured* measured) {
  OpKind kind{};
  auto& calls = measured->calls;
  const auto last = LastOf(calls, [](const std::pair<OpKind, int>& key) { return key.first; });
  AXCCL_RETURN_IF_ERROR(ReadKind(words, true, last == calls.end() ? nullptr : &last->first.first, &kind));
  double ranks = 0;
  AXCCL_RETURN_IF_ERROR(words->Number(2, kMostMeasuredRanks, &ranks, true));
  const auto more = calls.upper_bound({kind, static_cast<int>(ranks)});
  if (more != calls.end() && more->first.first == kind)
    return words->Fail("not less than " + std::to_string(more->first.second));
  return ReadPoint(words, &calls[{kind, static_cast<int>(ranks)}]);
}

struct MeasuredLine {
  std::string_view name;
  Status (*read)(MeasuredWords*, Measured*);
  bool once;
};
constexpr MeasuredLine kMeasuredLines[] = {
    {"streams", ReadStreams, true},
    {"product", ReadProduct, false},
    {"operation", ReadOperation, false},
    {"call", ReadCall, false},
};

std::string PointText(const MeasuredPoint& point) {
  return " " + FigureText(point.bytes) + " " + FigureText(point.seconds) + "\n";
}

}  // namespace

double SecondsAt(const MeasuredCurve& curve, double bytes) {
  if (curve.size() == 1 || bytes <= curve[0].bytes)
    return curve[0].seconds * std::max(1.0, curve[0].bytes > 0 ? bytes / curve[0].bytes : 1.0);
  size_t i = 1;
  while (i + 1 < curve.size() && curve[i].bytes < bytes) ++i;
  const MeasuredPoint &a = curve[i - 1], &b = curve[i];
  const double slope = (b.seconds - a.seconds) / (b.bytes - a.bytes);
  return std::max(0.0, bytes > b.bytes ? b.seconds + std::max(0.0, slope) * (bytes - b.bytes)
                                       : a.seconds + slope * (bytes - a.bytes));
}

Status ParseMeasured(std::string_view line, FabricLines* lines, Measured* measured) {
  const MeasuredLine* allowed = std::begin(kMeasuredLines);
  for (; !line.empty(); line = lines->Next()) {
    MeasuredWords words(line, *lines);
    const std::string_view name = words.Next();
    const auto* found =
        std::find_if(allowed, std::end(kMeasuredLines), [&](const MeasuredLine& known) { return known.name == name; });
    if (found == std::end(kMeasuredLines)) {
      std::string expected;
      for (const auto* known = allowed; known != std::end(kMeasuredLines); ++known)
        expected += "'" + std::string(known->name) + "', ";
      return words.Fail(expected + "or the end");
    }
    allowed = found->once ? found + 1 : found;
    AXCCL_RETURN_IF_ERROR(found->read(&words, measured));
    AXCCL_RETURN_IF_ERROR(words.End());
  }
  return Status();
}

std::string Print(const Measured& measured) {
  std::string text = measured.one_stream ? "streams 1\n" : "";
  for (const auto& [type, product] : measured.products)
    text += "product " + std::string(NameOf(type)) + " " + FigureText(product.seconds) + " " +
            FigureText(product.per_flop) + " " + FigureText(product.per_left_byte) + " " +
            FigureText(product.per_right_byte) + " " + FigureText(product.per_result_byte) + "\n";
  // By name, then ranks.
  std::map<std::pair<std::string_view, int>, std::string> operations, calls;
  for (const auto& [kind, curve] : measured.operations) {
    const std::string_view name = InfoOf(kind).name;
    for (const MeasuredPoint& point : curve)
      operations[{name, 0}] += "operation " + std::string(name) + PointText(point);
  }
  for (const auto& [key, curve] : measured.calls) {
    const std::string_view name = InfoOf(key.first).name;
    for (const MeasuredPoint& point : curve)
      calls[{name, key.second}] += "call " + std::string(name) + " " + std::to_string(key.second) + PointText(point);
  }
  for (const auto* const group : {&operations, &calls}) {
    for (const auto& [key, lines] : *group) text += lines;
  }
  return text;
}

}  // namespace axccl::program
