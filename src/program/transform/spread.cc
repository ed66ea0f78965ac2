#include "src/program/transform/spread.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "src/program/kinds.h"
#include "src/program/transform/correspond.h"

namespace axccl::program {
namespace {

using Kind = Layout::Kind;

std::optional<int> DimOf(const std::vector<int>& labels, int label) {
  const auto found = std::find(labels.begin(), labels.end(), label);
  if (found == labels.end()) return std::nullopt;
  return static_cast<int>(found - labels.begin());
}

class Spreader {
 public:
  Spreader(const Function& function, const SpreadRules& rules) : function_(function), rules_(rules) {}

  Result<Spread> Run(const std::vector<Layout>& arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      const Value& argument = function_.arguments[i];
      types_[argument.id] = &argument.type;
      out_.layouts[argument.id] = arguments[i];
    }
    for (const Operation& operation : function_.operations) {
      AXCCL_RETURN_IF_ERROR(Visit(operation));
      makers_[operation.id] = &operation;
    }
    CloseWhatIsOpen();
    return std::move(out_);
  }

 private:
  // An operation with the types and layouts of its operands.
  struct Use {
    const Operation* operation;
    std::vector<TensorType> types;
    std::vector<Layout> layouts;
    Correspondence labels;
  };

  Status Visit(const Operation& operation) {
    Use use{&operation, {}, {}, {}};
    for (const Id operand : operation.operands) {
      use.types.push_back(*types_.at(operand));
      use.layouts.push_back(out_.layouts.at(operand));
    }
    for (const Value& result : operation.results) types_[result.id] = &result.type;
    use.labels = CorrespondenceOf(operation, use.types);
    Result<SpreadStep> step = operation.results.size() > 1 ? EachBesideTheOther(use) : Through(use);
    AXCCL_RETURN_IF_ERROR(step.status());
    for (size_t i = 0; i < operation.operands.size(); ++i) Decide(operation.operands[i], step.value().operands[i]);
    for (size_t i = 0; i < operation.results.size(); ++i)
      out_.layouts[operation.results[i].id] = step.value().results[i];
    out_.steps.push_back(std::move(step.value()));
    return Status();
  }

  // The results come from one operand each.
  Result<SpreadStep> EachBesideTheOther(const Use& use) {
    SpreadStep all;
    if (!rules_.carries_terms && Any(use, Kind::kTerms) && Any(use, Kind::kSplit))
      return Refuse(*use.operation, "%s", "some operands are there for each part, others when all have run");
    for (size_t i = 0; i < use.operation->results.size(); ++i) {
      const Use one{use.operation,
                    {use.types[i]},
                    {use.layouts[i]},
                    {{use.labels.operands[i]}, {use.labels.results[i]}, use.labels.fold}};
      AXCCL_ASSIGN_OR_RETURN(SpreadStep step, Through(one));
      all.operands.push_back(step.operands[0]);
      all.results.push_back(step.results[0]);
    }
    return all;
  }

  Result<SpreadStep> Through(Use use) {
    AXCCL_ASSIGN_OR_RETURN(std::optional<int> label, LabelOf(use));
    if (label) return Along(use, *label);
    if (Any(use, Kind::kOpen)) {
      AXCCL_ASSIGN_OR_RETURN(label, Choose(use));
      if (label) return Along(use, *label);
      if (use.layouts.size() == 1 && IsPassed(use.operation->kind)) return AllAre(use, Layout::Open());
    }
    if (Any(use, Kind::kTerms)) {
      if (const std::optional<Layout> terms = TermsOf(use)) return AllAre(use, *terms);
      for (size_t i = 0; i < use.layouts.size(); ++i) {
        if (use.layouts[i].is_terms()) use.layouts[i] = Resolved(use.operation->operands[i], use.types[i]);
      }
      AXCCL_ASSIGN_OR_RETURN(label, LabelOf(use));
      if (label) return Along(use, *label);
    }
    return AllAre(use, Layout());
  }

  Layout Resolved(Id value, const TensorType& type) const {
    return rules_.resolved ? rules_.resolved(value, type) : Layout();
  }

  static bool Any(const Use& use, Kind kind) {
    return std::any_of(use.layouts.begin(), use.layouts.end(), [&](const Layout& l) { return l.kind == kind; });
  }

  static SpreadStep AllAre(const Use& use, const Layout& layout) {
    return {std::vector<Layout>(use.layouts.size(), layout), std::vector<Layout>(use.labels.results.size(), layout)};
  }

  // Of what all operands are terms.
  std::optional<Layout> TermsOf(const Use& use) const {
    const Layout& first = use.layouts[0];
    if (!rules_.carries_terms || !first.is_terms() || !IsLinear(*use.operation, first.fold)) return std::nullopt;
    for (const Layout& layout : use.layouts) {
      if (layout != first) return std::nullopt;
    }
    return first;
  }

  // The label along which operands are split, if any is.
  Result<std::optional<int>> LabelOf(const Use& use) const {
    std::optional<int> label;
    for (size_t i = 0; i < use.layouts.size(); ++i) {
      if (!use.layouts[i].is_split()) continue;
      const int own = use.labels.operands[i][static_cast<size_t>(use.layouts[i].dim)];
      if (own == kWhole) {
        return Refuse(*use.operation, "dimension %d of operand %%%u, which is split, cannot pass through it",
                      use.layouts[i].dim, use.operation->operands[i]);
      }
      if (label && *label != own) {
        return Refuse(*use.operation,
                      "dimension %d of operand %%%u, which is split, corresponds to none of the other "
                      "split dimensions",
                      use.layouts[i].dim, use.operation->operands[i]);
      }
      label = own;
    }
    return label;
  }

  template <class... Values>
  Status Refuse(const Operation& operation, const char* format, Values... values) const {
    const Status what = MakeStatus(Code::kInvalidArgument, format, values...);
    return MakeStatus(Code::kInvalidArgument, "transform %s: %%%u %s: %s", rules_.transform.c_str(), operation.id,
                      std::string(InfoOf(operation.kind).name).c_str(), std::string(what.message()).c_str());
  }

  // The label to cut an open operand of a product along: its first dimension that the result has and that can be cut.
  Result<std::optional<int>> Choose(const Use& use) const {
    if (use.operation->kind != OpKind::kDot && use.operation->kind != OpKind::kDotGeneral) return std::optional<int>();
    const size_t open = use.layouts[0].kind == Kind::kOpen ? 0 : 1;
    const std::vector<int>& other = use.labels.operands[1 - open];
    for (size_t d = 0; d < use.types[open].dims.size(); ++d) {
      const int label = use.labels.operands[open][d];
      if (!DimOf(other, label) && use.types[open].dims[d] % rules_.parts == 0) return std::optional<int>(label);
    }
    return Refuse(*use.operation, "no dimension of the weight %%%u can be cut into %lld", use.operation->operands[open],
                  static_cast<long long>(rules_.parts));
  }

  static bool IsPassed(OpKind kind) {
    return kind == OpKind::kConvert || kind == OpKind::kBroadcastInDim || kind == OpKind::kTranspose;
  }

  Result<SpreadStep> Along(const Use& use, int label) const {
    SpreadStep step;
    for (size_t i = 0; i < use.layouts.size(); ++i) {
      const std::optional<int> dim = DimOf(use.labels.operands[i], label);
      step.operands.push_back(dim ? Layout::Split(*dim) : Layout());
      if (dim) AXCCL_RETURN_IF_ERROR(CheckSize(*use.operation, use.types[i], *dim));
      if (!rules_.carries_terms && dim && use.layouts[i].is_terms())
        return Refuse(*use.operation, "operand %%%u is there when all parts have run", use.operation->operands[i]);
    }
    for (size_t i = 0; i < use.labels.results.size(); ++i) {
      const std::optional<int> dim = DimOf(use.labels.results[i], label);
      if (dim) AXCCL_RETURN_IF_ERROR(CheckSize(*use.operation, use.operation->results[i].type, *dim));
      step.results.push_back(dim ? Layout::Split(*dim) : Layout::Terms(*use.labels.fold));
      if (!dim && use.operation->kind == OpKind::kReduce) AXCCL_RETURN_IF_ERROR(CheckInitial(*use.operation));
    }
    return step;
  }

  Status CheckSize(const Operation& operation, const TensorType& type, int dim) const {
    const int64_t size = type.dims[static_cast<size_t>(dim)];
    if (size % rules_.parts == 0) return Status();
    return Refuse(operation, "dimension %d, of size %lld, cannot be cut into %lld", dim, static_cast<long long>(size),
                  static_cast<long long>(rules_.parts));
  }

  // Every part folds the initial value in.
  Status CheckInitial(const Operation& reduce) const {
    const auto maker = makers_.find(reduce.operands[1]);
    const Combine fold = Get<Combine>(reduce, Attr::kFold);
    if (fold != Combine::kSum && fold != Combine::kXor) return Status();
    if (maker != makers_.end() && maker->second->kind == OpKind::kConstant) {
      const Literal& literal = Get<Literal>(*maker->second, Attr::kValue);
      if (std::all_of(literal.bytes.begin(), literal.bytes.end(), [](uint8_t byte) { return byte == 0; }))
        return Status();
    }
    return Refuse(reduce, "the initial value %%%u is not 0, and each of the parts would add it", reduce.operands[1]);
  }

  // What is open is, from now on, as this use of it needs it; and so is what it was made of.
  void Decide(Id value, const Layout& layout) {
    const auto found = out_.layouts.find(value);
    if (found->second.kind != Kind::kOpen || layout.kind == Kind::kOpen) return;
    found->second = layout;
    const auto made = makers_.find(value);
    if (made == makers_.end()) return;
    const Operation& maker = *made->second;
    const std::vector<TensorType> types{*types_.at(maker.operands[0])};
    const Correspondence labels = CorrespondenceOf(maker, types);
    Layout before;
    if (layout.is_split()) {
      const int label = labels.results[0][static_cast<size_t>(layout.dim)];
      if (const std::optional<int> dim = DimOf(labels.operands[0], label); dim && label != kWhole)
        before = Layout::Split(*dim);
    }
    SpreadStep& step = out_.steps[static_cast<size_t>(&maker - function_.operations.data())];
    step = {{before}, {before.is_split() || layout.is_same() ? layout : Layout()}};
    found->second = step.results[0];
    Decide(maker.operands[0], before);
  }

  void CloseWhatIsOpen() {
    for (SpreadStep& step : out_.steps) {
      for (std::vector<Layout>* layouts : {&step.operands, &step.results}) {
        for (Layout& layout : *layouts) layout = layout.kind == Kind::kOpen ? Layout() : layout;
      }
    }
    for (auto& [value, layout] : out_.layouts) layout = layout.kind == Kind::kOpen ? Layout() : layout;
  }

  const Function& function_;
  const SpreadRules& rules_;
  std::unordered_map<Id, const TensorType*> types_;
  std::unordered_map<Id, const Operation*> makers_;
  Spread out_;
};

}  // namespace

Result<Spread> SpreadOf(const Function& function, const std::vector<Layout>& arguments, const SpreadRules& rules) {
  return Spreader(function, rules).Run(arguments);
}

TensorType PieceOf(const TensorType& type, const Layout& layout, int64_t parts) {
  TensorType piece = type;
  if (layout.is_split()) piece.dims[static_cast<size_t>(layout.dim)] /= parts;
  return piece;
}

}  // namespace axccl::program
