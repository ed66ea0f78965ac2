#include "tests/program/distir_pipeline.h"

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "src/program/builder.h"
#include "src/program/transform.h"
#include "src/program/transform/stages.h"

namespace axccl::program {
namespace {

class DistirPipelineWriter {
 public:
  explicit DistirPipelineWriter(const DistirPipeline& pipeline) : p_(pipeline), depth_(p_.layers / p_.stages) {
    for (int64_t s = 0; s < p_.stages; ++s) sites_.emplace_back(s);
    for (int64_t i = 0; i < p_.layers; ++i) At(0).values[{What::kWeight, i, 0}] = At(0).builder.Argument(WeightType(i));
    for (int64_t m = 0; m < p_.microbatches; ++m) {
      At(0).values[{What::kInput, 0, m}] = At(0).builder.Argument(InputType(0));
      At(0).values[{What::kLabels, 0, m}] = At(0).builder.Argument(InputType(0));
    }
  }

  Program Run() {
    for (const std::vector<Pass>& step :
         ScheduleOf(static_cast<int>(p_.stages), static_cast<int>(p_.microbatches), PipelineOrder::k1F1B)) {
      for (size_t s = 0; s < step.size(); ++s) Execute(step[s], static_cast<int64_t>(s));
      for (size_t s = 0; s < step.size(); ++s) Deliver(step[s], static_cast<int64_t>(s));
    }
    Program program;
    program.ranks = static_cast<int>(p_.data * p_.stages * p_.tensor);
    for (Site& site : sites_) program.parts.push_back({RanksOf(site.stage), FinishSite(&site)});
    return program;
  }

 private:
  enum class What : uint8_t { kInput, kLabels, kWeight, kProduct, kGradient };  // kGradient: of the layer's output
  using Key = std::tuple<What, int64_t, int64_t>;                               // layer, microbatch

  struct Site {
    explicit Site(int64_t number) : stage(number), builder("stage" + std::to_string(number)) {}
    int64_t stage;
    Builder builder;
    std::map<Key, Id> values;
    std::map<int64_t, Id> sums;  // of the gradients of a layer's weights
    std::vector<Id> joined;      // loss or gradient of the input, of each microbatch
  };

  Site& At(int64_t stage) { return sites_[static_cast<size_t>(stage)]; }
  int64_t LayersEnd(int64_t stage) const { return (stage + 1) * depth_; }

  // Weights are cut by columns and by rows in turn, so that every second product is a sum over ranks.
  TensorType InputType(int64_t layer) const {
    return {DataType::kFloat32, {p_.batch / p_.data / p_.microbatches, layer % 2 == 0 ? p_.dim : p_.dim / p_.tensor}};
  }
  TensorType WeightType(int64_t layer) const {
    Ints dims{p_.dim, p_.dim};
    dims[layer % 2 == 0 ? 1 : 0] /= p_.tensor;
    return {DataType::kFloat32, dims};
  }

  int64_t RankOf(int64_t copy, int64_t stage, int64_t t) const { return (copy * p_.stages + stage) * p_.tensor + t; }
  Ints RanksOf(int64_t stage) const {
    Ints ranks;
    for (int64_t copy = 0; copy < p_.data; ++copy) {
      for (int64_t t = 0; t < p_.tensor; ++t) ranks.push_back(RankOf(copy, stage, t));
    }
    return ranks;
  }
  Groups TensorGroups(int64_t stage) const {
    Groups groups(static_cast<size_t>(p_.data));
    for (int64_t copy = 0; copy < p_.data; ++copy) {
      for (int64_t t = 0; t < p_.tensor; ++t) groups[static_cast<size_t>(copy)].push_back(RankOf(copy, stage, t));
    }
    return groups;
  }
  Groups CopyGroups(int64_t stage) const {
    Groups groups(static_cast<size_t>(p_.tensor));
    for (int64_t t = 0; t < p_.tensor; ++t) {
      for (int64_t copy = 0; copy < p_.data; ++copy) groups[static_cast<size_t>(t)].push_back(RankOf(copy, stage, t));
    }
    return groups;
  }

  static Id Sum(Site* site, Id value, const Groups& groups) {
    if (groups[0].size() == 1) return value;
    return site->builder.Add(OpKind::kAllReduce, {value}, site->builder.TypeOf(value),
                             {{Attr::kFold, Combine::kSum}, {Attr::kGroups, groups}, {Attr::kChannel, int64_t{1}}});
  }

  void Send(const Key& key, int64_t from, int64_t to) {
    Groups pairs;
    const Ints sources = RanksOf(from), targets = RanksOf(to);
    for (size_t i = 0; i < sources.size(); ++i) pairs.push_back({sources[i], targets[i]});
    const std::vector<Attribute> attributes{{Attr::kPairs, pairs}, {Attr::kChannel, int64_t{2}}};
    const Id value = At(from).values.at(key);
    Operation send;
    send.kind = OpKind::kSend;
    send.operands = {value};
    send.attributes = attributes;
    At(from).builder.Append(std::move(send));
    At(to).values[key] = At(to).builder.Add(OpKind::kRecv, {}, At(from).builder.TypeOf(value), attributes);
  }

  // An argument, which the first stage has.
  Id Fetch(const Key& key, int64_t stage) {
    if (At(stage).values.count(key) == 0) Send(key, 0, stage);
    return At(stage).values.at(key);
  }

  void Execute(const Pass& pass, int64_t stage) {
    if (pass.microbatch < 0) return;
    if (pass.is_forward)
      Forward(stage, pass.microbatch);
    else
      Backward(stage, pass.microbatch);
  }

  void Deliver(const Pass& pass, int64_t stage) {
    if (pass.microbatch < 0) return;
    if (pass.is_forward && stage + 1 < p_.stages)
      Send({What::kInput, LayersEnd(stage), pass.microbatch}, stage, stage + 1);
    if (!pass.is_forward && stage > 0)
      Send({What::kGradient, LayersEnd(stage - 1) - 1, pass.microbatch}, stage, stage - 1);
  }

  void Forward(int64_t stage, int64_t m) {
    Site& site = At(stage);
    Builder& b = site.builder;
    for (int64_t layer = LayersEnd(stage - 1); layer < LayersEnd(stage); ++layer) {
      const Id input = site.values.at({What::kInput, layer, m});
      Id product = b.Dot(input, Fetch({What::kWeight, layer, 0}, stage), {1}, {0});
      if (layer % 2 == 1) product = Sum(&site, product, TensorGroups(stage));
      site.values[{What::kProduct, layer, m}] = product;
      site.values[{What::kInput, layer + 1, m}] = b.Elementwise(OpKind::kTanh, {product});
    }
    if (stage + 1 < p_.stages) return;
    const Id output = site.values.at({What::kInput, p_.layers, m});
    const Id labels = Fetch({What::kLabels, 0, m}, stage);
    site.joined.push_back(b.Elementwise(OpKind::kMultiply, {output, labels}));
    site.values[{What::kGradient, p_.layers - 1, m}] = b.Elementwise(OpKind::kSubtract, {output, labels});
  }

  void Backward(int64_t stage, int64_t m) {
    Site& site = At(stage);
    Builder& b = site.builder;
    for (int64_t layer = LayersEnd(stage) - 1; layer >= LayersEnd(stage - 1); --layer) {
      const Id gradient = site.values.at({What::kGradient, layer, m});
      const Id through = b.Elementwise(OpKind::kMultiply, {site.values.at({What::kProduct, layer, m}), gradient});
      Id before = b.Dot(through, site.values.at({What::kWeight, layer, 0}), {1}, {1});
      const Id of_weight = b.Dot(site.values.at({What::kInput, layer, m}), through, {0}, {0});
      if (layer % 2 == 0) before = Sum(&site, before, TensorGroups(stage));
      site.values[{What::kGradient, layer - 1, m}] = before;
      if (layer == 0) site.joined.push_back(before);
      const auto [sum, is_first] = site.sums.try_emplace(layer, of_weight);
      if (!is_first) sum->second = b.Elementwise(OpKind::kAdd, {sum->second, of_weight});
    }
  }

  // What copies have for each other.
  Function FinishSite(Site* site) {
    Builder& b = site->builder;
    std::vector<Id> results;
    for (const auto& [layer, sum] : site->sums) results.push_back(Sum(site, sum, CopyGroups(site->stage)));
    if (site->joined.empty()) return b.Finish(results);
    TensorType type = b.TypeOf(site->joined[0]);
    type.dims[0] *= p_.microbatches;
    const Id joined = p_.microbatches == 1
                          ? site->joined[0]
                          : b.Add(OpKind::kConcatenate, site->joined, type, {{Attr::kDim, int64_t{0}}});
    results.push_back(joined);
    if (p_.data == 1) return b.Finish(results);
    type.dims[0] *= p_.data;
    results.back() =
        b.Add(OpKind::kAllGather, {joined}, type,
              {{Attr::kDim, int64_t{0}}, {Attr::kGroups, CopyGroups(site->stage)}, {Attr::kChannel, int64_t{3}}});
    return b.Finish(results);
  }

  const DistirPipeline p_;
  const int64_t depth_;  // layers of a stage
  std::vector<Site> sites_;
};

}  // namespace

Program MakeDistirPipeline(const DistirPipeline& pipeline) { return DistirPipelineWriter(pipeline).Run(); }

}  // namespace axccl::program
