#include "tests/exec/post.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

namespace axccl::exec {

namespace {

constexpr size_t kPage = 4096;

}  // namespace

class Post::Remote : public transport::RemoteRank {
 public:
  Remote(Post* post, int viewer, int rank, std::byte* own) : post_(post), viewer_(viewer), rank_(rank), own_(own) {
    // Pages that are never used cost nothing.
    memory_.reset(static_cast<std::byte*>(std::calloc(kBlockOffset + post->block_bytes_ + kPage, 1)));
    heap_ = memory_.get() + (kPage - reinterpret_cast<uintptr_t>(memory_.get()) % kPage) % kPage;
    heap_bytes_ = kBlockOffset + post->block_bytes_;
    pid_ = 5000u + static_cast<uint32_t>(rank);
  }

  Result<std::shared_ptr<Area>> AddArea(uint64_t, std::byte*, uint64_t) override {
    return MakeStatus(Code::kInternalError, "there are no areas here");
  }
  void Send(const std::shared_ptr<Area>&, std::span<const Stretch> stretches, uint64_t line) override {
    EXPECT_TRUE(poller().polling > 0 || poller().left);
    Message message{{stretches.begin(), stretches.end()}, line, {}};
    if (line != kNoLine) std::copy_n(own_ + line, kLineBytes, message.bytes.data());
    if (++post_->messages_ == post_->lose_) {
      const auto lost =
          std::find_if(message.stretches.begin(), message.stretches.end(), [](const Stretch& s) { return !s.guarded; });
      if (lost != message.stretches.end()) {
        message.stretches.erase(lost);
        post_->lost_ = true;
      } else {
        ++post_->lose_;
      }
    }
    sent_.push_back(std::move(message));
  }
  void Progress() override { post_->Deliver(viewer_); }
  void BeginPolling() override {
    ++poller().polling;
    poller().left = false;
  }
  void EndPolling(bool waiting) override {
    --poller().polling;
    poller().left = waiting;
  }
  std::string Trouble() const override { return ""; }
  const std::string& host() const override { return host_; }
  void Flush(std::chrono::milliseconds) override {}
  void Detach() override {}
  bool sending() const override { return !sent_.empty(); }

  std::byte* mirror() const { return heap_ + kBlockOffset; }
  bool idle() const { return sent_.empty(); }
  // The first message of those sent to the peer, whose end of the link is `there`.
  void DeliverOne(Remote* there) {
    const Message message = std::move(sent_.front());
    sent_.pop_front();
    for (const Stretch& stretch : message.stretches) {
      const std::byte* from = (stretch.of_peer ? mirror() : own_) + stretch.offset;
      std::memcpy((stretch.of_peer ? there->own_ : there->mirror()) + stretch.offset, from, stretch.bytes);
      post_->bytes_ += stretch.bytes;
    }
    if (message.line != kNoLine) std::copy_n(message.bytes.data(), kLineBytes, there->mirror() + message.line);
  }

 private:
  Poller& poller() const { return post_->pollers_[static_cast<size_t>(viewer_)]; }
  struct Message {
    std::vector<Stretch> stretches;
    uint64_t line;
    std::array<std::byte, kLineBytes> bytes;
  };

  Post* const post_;
  const int viewer_, rank_;
  const std::string host_ = "elsewhere";
  std::byte* const own_;
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::deque<Message> sent_;
};

Post::Post(int ranks, size_t block_bytes)
    : ranks_(ranks), block_bytes_(block_bytes), pollers_(static_cast<size_t>(ranks)) {}
Post::~Post() = default;

transport::RemoteRank* Post::Link(int viewer, int rank, std::byte* own) {
  remotes_.resize(static_cast<size_t>(ranks_) * ranks_);
  auto& remote = remotes_[static_cast<size_t>(viewer * ranks_ + rank)];
  if (remote == nullptr) remote = std::make_unique<Remote>(this, viewer, rank, own);
  return remote.get();
}

void Post::Deliver(int to) {
  for (int from = 0; from < ranks_; ++from) {
    Remote* const sender = remotes_[static_cast<size_t>(from * ranks_ + to)].get();
    if (sender == nullptr) continue;
    for (uint64_t some = random_.Below(3); some > 0 && !sender->idle(); --some)
      sender->DeliverOne(remotes_[static_cast<size_t>(to * ranks_ + from)].get());
  }
}

}  // namespace axccl::exec
