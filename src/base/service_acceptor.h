// Accepts connections and limits them until they have proved their identity.
//
// An Acceptor owns a listening socket. Every accepted connection becomes a Guest, an object of fixed size. A guest that
// is not admitted within `kGuestTime` is cut; beyond `cap()` guests, the oldest is cut. So strangers can neither
// exhaust the process's memory or descriptors nor keep others out for long. Everything runs on the service thread (see
// service.h).
#pragma once

#include <functional>
#include <list>
#include <memory>

#include "src/base/service.h"
#include "src/base/service_fd.h"

namespace axccl::service {

inline constexpr std::chrono::seconds kGuestTime{3};

class Guest {
 public:
  enum class Verdict { kWait, kDrop, kAdmit };

  explicit Guest(Fd fd) : fd_(std::move(fd)) {}
  virtual ~Guest() = default;

  // Called when the socket is readable or broken. kWait: call again; kDrop: close it; kAdmit: Admitted() takes the
  // descriptor.
  virtual Verdict OnEvent() = 0;
  // Called once after kAdmit; the acceptor then deletes the guest.
  virtual void Admitted(Fd fd) {}
  // Called before the guest is dropped because its socket cannot be watched.
  virtual void Unheard(const Status& why) {}

  int fd() const { return fd_.get(); }

 private:
  friend class Acceptor;
  Fd fd_;
};

class Acceptor {
 public:
  // `make_guest` may return null to refuse; `cap` is called at every accept.
  Acceptor(Loop* loop, Fd listener, std::function<std::unique_ptr<Guest>(Fd)> make_guest, std::function<size_t()> cap);
  ~Acceptor();  // closes the listener and cuts all guests
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  Status Start();
  // Calls OnEvent of every guest as if there were something to read: what guests wait for may have come another way.
  void AskGuests();
  size_t guests() const { return guests_.size(); }

 private:
  struct Entry {
    std::unique_ptr<Guest> guest;
    uint64_t timer = 0;
  };
  using Iterator = std::list<Entry>::iterator;

  void OnListener();
  void AddGuest(Fd fd);
  void OnGuest(Iterator entry);
  void Drop(Iterator entry);
  void Pause();

  Loop* const loop_;
  Fd listener_;
  const std::function<std::unique_ptr<Guest>(Fd)> make_guest_;
  const std::function<size_t()> cap_;
  std::list<Entry> guests_;  // oldest first
  uint64_t pause_timer_ = 0;
};

}  // namespace axccl::service
