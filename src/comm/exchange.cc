#include "src/comm/exchange.h"

#include <cstring>

namespace axccl::comm {
namespace {

class BootExchange : public Exchange {
 public:
  explicit BootExchange(std::unique_ptr<boot::Session> session) : session_(std::move(session)) {}
  Status AllGather(const void* mine, size_t bytes, void* all) override { return session_->AllGather(mine, bytes, all); }
  void Fail(const Status& reason) override { session_->Fail(reason); }

 private:
  const std::unique_ptr<boot::Session> session_;
};

}  // namespace

std::unique_ptr<Exchange> MakeBootExchange(std::unique_ptr<boot::Session> session) {
  return std::make_unique<BootExchange>(std::move(session));
}

class LocalMeeting::Seat : public Exchange {
 public:
  Seat(LocalMeeting* meeting, int rank) : meeting_(meeting), rank_(rank) {}

  Status AllGather(const void* mine, size_t bytes, void* all) override {
    LocalMeeting& m = *meeting_;
    std::unique_lock lock(m.mutex_);
    if (!m.failure_.ok()) return m.failure_;
    m.gathering_.resize(bytes * static_cast<size_t>(m.ranks_));
    std::memcpy(m.gathering_.data() + bytes * static_cast<size_t>(rank_), mine, bytes);
    const uint64_t round = m.round_;
    if (++m.arrived_ == m.ranks_) {
      m.arrived_ = 0;
      m.gathered_ = m.gathering_;
      ++m.round_;
      m.changed_.notify_all();
    } else {
      // The wait ends: every seat belongs to a thread of the same call, which contributes or fails.
      m.changed_.wait(lock, [&] { return m.round_ != round || !m.failure_.ok(); });
      if (m.round_ == round) return m.failure_;
    }
    std::memcpy(all, m.gathered_.data(), m.gathered_.size());
    return Status();
  }

  void Fail(const Status& reason) override {
    std::lock_guard lock(meeting_->mutex_);
    if (meeting_->failure_.ok()) meeting_->failure_ = reason;
    meeting_->changed_.notify_all();
  }

 private:
  LocalMeeting* const meeting_;
  const int rank_;
};

std::unique_ptr<Exchange> LocalMeeting::Join(int rank) { return std::make_unique<Seat>(this, rank); }

}  // namespace axccl::comm
