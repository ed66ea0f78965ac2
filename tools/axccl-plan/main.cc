// axccl-plan: the plan's text form, hash, verifier and simulator, and the choice between plans, on the command line.
#include <cstdio>
#include <cstring>
#include <new>
#include <string>

#include "src/algo/algo.h"
#include "src/base/command_line.h"
#include "src/base/files.h"
#include "src/base/json.h"
#include "src/base/standard_output.h"
#include "src/plan/text.h"
#include "src/verify/verify.h"
#include "tools/axccl-plan/drawing.h"
#include "tools/axccl-plan/explain.h"
#include "tools/axccl-plan/options.h"
#include "tools/axccl-plan/simulate.h"

namespace axccl::tools {
namespace {

constexpr size_t kMostBytes = size_t{1} << 32;  // of a plan

enum Exit : int { kDone = 0, kBadPlan = 1, kBadUse = 2 };

int Complain(const Status& status, Exit exit) {
  std::fprintf(stderr, "axccl-plan: %.*s\n", static_cast<int>(status.message().size()), status.message().data());
  return exit;
}

int PrintAll(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kDone;
}

// Those of the kind, which are for ranks of one machine.
std::vector<std::string_view> MulticastAlgorithms(plan::Kind kind, const Options& o) {
  if (o.placement.machines() > 1) return {};
  return algo::MulticastAlgorithms(kind);
}

int ListAsJson(const Options& o) {
  return PrintAll(JsonText([&](JsonWriter* json) {
    json->BeginObject();
    json->Key("collectives").BeginList();
    for (int i = 0; i < plan::kNumKinds; ++i) {
      const auto kind = static_cast<plan::Kind>(i);
      if (o.has_op && kind != o.contract.kind) continue;
      const auto& plain = algo::Algorithms(kind, o.placement);
      const auto multicast = MulticastAlgorithms(kind, o), chunked = algo::ChunkedAlgorithms(kind);
      json->BeginObject();
      json->Key("name").String(plan::KindName(kind));
      json->Key("algorithms").Strings({plain.begin(), plain.end()});
      json->Key("multicast_algorithms").Strings({multicast.begin(), multicast.end()});
      json->Key("chunked_algorithms").Strings({chunked.begin(), chunked.end()});
      json->EndObject();
    }
  }));
}

constexpr int kColumns = 100;  // of the output

int List(const Options& o) {
  if (o.json) return ListAsJson(o);
  for (int i = 0; i < plan::kNumKinds; ++i) {
    const auto kind = static_cast<plan::Kind>(i);
    if (o.has_op && kind != o.contract.kind) continue;
    auto column = std::printf("%-15s", plan::KindName(kind));
    for (const auto& names :
         {algo::Algorithms(kind, o.placement), MulticastAlgorithms(kind, o), algo::ChunkedAlgorithms(kind)}) {
      for (const std::string_view name : names) {
        if (column + 1 + static_cast<int>(name.size()) > kColumns) column = std::printf("\n%-15s", "") - 1;
        column += std::printf(" %.*s", static_cast<int>(name.size()), name.data());
      }
    }
    std::printf("\n");
  }
  return kDone;
}

size_t OpsOf(const plan::Schedule& s) {
  size_t ops = 0;
  for (const auto& lanes : s.program) {
    for (const auto& lane : lanes) ops += lane.ops.size();
  }
  return ops;
}

// `status`: of the proof. The order of a fold is that of a reduction only.
std::string VerifiedAsJson(const plan::Schedule& s, const std::string& text, const Status& status,
                           const verify::Facts& facts) {
  return JsonText([&](JsonWriter* json) {
    json->BeginObject();
    json->Key("right").Bool(status.ok());
    if (!status.ok()) json->Key("error").String(std::string(status.message()));
    json->Key("algorithm").String(s.algorithm);
    json->Key("collective").String(plan::KindName(s.contract.kind));
    json->Key("ranks").Int(s.contract.ranks);
    json->Key("root").Int(s.contract.root);
    json->Key("lanes").Int(s.lanes);
    json->Key("operations").Int(static_cast<int64_t>(OpsOf(s)));
    json->Key("direct").Bool(s.direct);
    json->Key("hash").String(plan::ToString(plan::HashOf(text)));
    if (!status.ok()) return;
    json->Key("complete").Bool(facts.complete);
    if (plan::Reduces(s.contract.kind)) json->Key("group_order").Bool(facts.group_order);
  });
}

int Verify(const Options& o, const plan::Schedule& s, const std::string& text) {
  verify::Facts facts;
  const Status status = verify::Verify(s, &facts);
  if (o.json) PrintAll(VerifiedAsJson(s, text, status, facts));
  if (!status.ok()) return Complain(status, kBadPlan);
  if (o.json) return kDone;
  std::printf("right: %s %s, %d ranks, root %d, %d lanes, %zu operations, %s, %s%s, hash %s\n", s.algorithm.c_str(),
              plan::KindName(s.contract.kind), s.contract.ranks, s.contract.root, s.lanes, OpsOf(s),
              s.direct ? "direct" : "staged", facts.complete ? "complete" : "not complete",
              plan::Reduces(s.contract.kind) && facts.group_order ? ", in group order" : "",
              plan::ToString(plan::HashOf(text)).c_str());
  return kDone;
}

int Run(const Options& o) {
  if (o.command == Command::kHelp) return PrintAll(HelpText());
  if (o.command == Command::kVersion) return PrintAll(command_line::VersionText("axccl-plan"));
  if (o.command == Command::kList) return List(o);
  if (o.command == Command::kSimulate || o.command == Command::kExplain) {
    const Result<std::string> report = o.command == Command::kSimulate ? SimulationReport(o) : Explain(o);
    return report.ok() ? PrintAll(report.value()) : Complain(report.status(), kBadUse);
  }
  std::string text;
  if (!o.file.empty()) {
    Result<std::string> read = ReadWholeFile(o.file == "-" ? "/dev/stdin" : o.file, kMostBytes);
    if (!read.ok()) return Complain(read.status(), kBadUse);
    text = std::move(*read);
  }
  Result<plan::Schedule> schedule = !o.file.empty() ? plan::Parse(text)
                                    : o.chunked     ? algo::GenerateChunked(o.contract, o.algorithm, o.chunking)
                                                    : algo::Generate(o.contract, o.algorithm, o.lanes, o.placement);
  if (!schedule.ok()) return Complain(schedule.status(), o.file.empty() ? kBadUse : kBadPlan);
  if (o.file.empty()) text = plan::Print(*schedule);
  if (o.command == Command::kVerify) return Verify(o, *schedule, text);
  if (o.command == Command::kShow) return PrintAll(o.svg ? DrawingOf(*schedule) : text);
  std::printf("%s\n", plan::ToString(plan::HashOf(text)).c_str());
  return kDone;
}

}  // namespace
}  // namespace axccl::tools

int main(int argc, char** argv) {
  using namespace axccl;
  ExpectOutputAtExit("axccl-plan", tools::kBadUse);
  Result<tools::Options> options = tools::ParseOptions({argv + 1, argv + argc});
  if (!options.ok()) return tools::Complain(options.status(), tools::kBadUse);
  if (options->json) LogToStderr();
  try {
    return tools::Run(*options);
  } catch (const std::bad_alloc&) {
    return tools::Complain(MakeStatus(Code::kSystemError, "memory ran out"), tools::kBadUse);
  }
}
