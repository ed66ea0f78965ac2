#include "src/comm/net/survey.h"

#include <chrono>

#include "src/base/log.h"
#include "src/base/param.h"

namespace axccl::comm {

void NetworkSurvey::FindClasses(std::span<const int> machine_of, std::span<const NetworkText> networks) {
  classes_ = FindPairClasses(machine_of, networks);
}

NetworkSurvey::News NetworkSurvey::Recall(const cost::Network& figures, NetworkSource source) {
  News news{figures, source, 0};
  const std::string when = param::Get("AXCCL_NET_MEASURE");
  if (news.source != NetworkSource::kFixed || when == "never" || classes_.empty()) return news;
  known_.resize(classes_.size());
  for (size_t i = 0; i < classes_.size(); ++i) {
    const std::string& name = classes_[i].name;
    const Result<cost::Network> recalled =
        when == "always" ? Status(Code::kSystemError, "not asked for") : cost::RecallNetwork(name);
    if (recalled.ok()) {
      known_[i] = recalled.value();
      Log(i, "kept in " + cost::NetworkFile(name));
      continue;
    }
    news.to_measure |= 1u << i;
    if (recalled.status().code() == Code::kInvalidArgument)
      AXCCL_INFO(kInit, "%s; measuring again", std::string(recalled.status().message()).c_str());
  }
  if (news.to_measure == 0) SetFigures(NetworkSource::kKept, &news);
  return news;
}

// Call it once all classes are known.
void NetworkSurvey::SetFigures(NetworkSource source, News* news) const {
  news->figures = known_[0];
  for (const cost::Network& network : known_) news->figures = cost::Slower(news->figures, network);
  news->source = source;
}

void NetworkSurvey::Log(size_t i, const std::string& source) const {
  const cost::Network& network = known_[i];
  AXCCL_INFO(kInit, "network %s: messages take %.2f us, and %.2f us of each end; %.1f MB/s; %s",
             classes_[i].name.c_str(), 1e6 * network.signal_seconds, 1e6 * network.message_seconds,
             1e-6 * network.link_bytes_per_second, source.c_str());
}

Status NetworkSurvey::Prepare(const News& news, exec::BlockHeader* own, const ReachOf& reach_of) {
  news_ = news;
  for (size_t i = 0; i < classes_.size(); ++i) {
    const int other = classes_[i].rank;
    if ((news.to_measure >> i & 1) == 0 || (self_ != 0 && self_ != other)) continue;
    const int peer = self_ == 0 ? other : 0;
    AXCCL_ASSIGN_OR_RETURN(auto probe, NetworkProbe::Create({peer, reach_of(peer)}, own));
    probes_.emplace_back(i, std::move(probe));
  }
  return Status();
}

Result<NetworkSurvey::News> NetworkSurvey::Measure(device::host::Queue* queue, const NetworkProbe::Patience& patience) {
  for (const auto& [i, probe] : probes_) {
    AXCCL_INFO(kInit, "measuring the network %s", classes_[i].name.c_str());
    if (self_ != 0) {
      AXCCL_RETURN_IF_ERROR(probe->Answer(queue, patience));
      continue;
    }
    const auto begin = std::chrono::steady_clock::now();
    AXCCL_ASSIGN_OR_RETURN(known_[i], probe->Measure(queue, patience));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    cost::KeepNetwork(classes_[i].name, known_[i]);
    Log(i, "measured in " + std::to_string(took.count()) + " ms");
  }
  if (self_ == 0 && news_.to_measure != 0) SetFigures(NetworkSource::kMeasured, &news_);
  return news_;
}

void NetworkSurvey::GiveUp() {
  for (const auto& [i, probe] : probes_) probe->GiveUp();
}

std::vector<void*> NetworkSurvey::TakeMemory() {
  std::vector<void*> memory;
  memory.reserve(probes_.size());
  for (const auto& [i, probe] : probes_) {
    if (void* const kept = probe->TakeMemory(); kept != nullptr) memory.push_back(kept);
  }
  probes_.clear();
  return memory;
}

}  // namespace axccl::comm
