// Accepts connections and limits them until they have proved their identity.
//
// An Acceptor owns a listening socket. Every accepted connection becomes a Guest, an object of fixed size, and first a
// *stranger*. Once it has named what only a peer can know (Guest::Named), it is *recognised*. Either way it has
// `kGuestTime` to go on, else it is cut. Strangers that come make room for themselves: the oldest of the acceptor is
// cut beyond `Places::strangers`, and the oldest of the fullest acceptor beyond what the process has descriptors for.
// Recognised guests are cut for others of the same name alone, beyond `Places::of_a_name`. So strangers can neither
// exhaust the process's memory or descriptors nor keep peers out, at whatever rate they come. Everything runs on the
// service thread (see service.h).
#pragma once

#include <array>
#include <functional>
#include <list>
#include <map>
#include <memory>

#include "src/base/service.h"
#include "src/base/service_fd.h"

namespace axccl::service {

inline constexpr std::chrono::seconds kGuestTime{3};
// Strangers of all acceptors of the process, unless its limit on open files is below eight times as many.
inline constexpr size_t kMostStrangers = 256;

class Guest {
 public:
  enum class Verdict { kWait, kDrop, kAdmit };
  using Name = std::array<uint8_t, 16>;

  explicit Guest(Fd fd) : fd_(std::move(fd)) {}
  virtual ~Guest() = default;

  // Called when the socket is readable or broken. kWait: call again; kDrop: close it; kAdmit: Admitted() takes the
  // descriptor.
  virtual Verdict OnEvent() = 0;
  // What the guest has named so far that only a peer can know: a random number that was never sent to others. Null:
  // nothing.
  virtual const Name* Named() const { return nullptr; }
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
  // How many guests there may be at once. At least one of each.
  struct Places {
    size_t strangers = kMostStrangers;
    size_t of_a_name = 1;
  };

  // `make_guest` may return null to refuse; `places` is called when a guest needs one.
  Acceptor(Loop* loop, Fd listener, std::function<std::unique_ptr<Guest>(Fd)> make_guest,
           std::function<Places()> places);
  ~Acceptor();  // closes the listener and cuts all guests
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  Status Start();
  // Calls OnEvent of every stranger as if there were something to read: what these wait for may have come another way.
  void AskStrangers();
  size_t guests() const;

 private:
  struct Entry;
  using Entries = std::list<Entry>;  // oldest first
  using Iterator = Entries::iterator;
  struct Entry {
    std::unique_ptr<Guest> guest;
    Entries* among;  // strangers_, or those of its name
    uint64_t timer = 0;
  };

  void OnListener();
  void MakeRoom();
  void AddGuest(Fd fd);
  void OnGuest(Iterator entry);
  void Recognise(Iterator entry, const Guest::Name& name);
  void LimitTime(Iterator entry);
  std::unique_ptr<Guest> Leave(Iterator entry);
  void Drop(Iterator entry) { (void)Leave(entry); }
  void Pause();

  // Of the list of those that were started, after a fork also by the parents. On the service thread.
  static inline Acceptor* first_ = nullptr;
  Acceptor* next_ = nullptr;

  Loop* const loop_;
  Fd listener_;
  const std::function<std::unique_ptr<Guest>(Fd)> make_guest_;
  const std::function<Places()> places_;
  Entries strangers_;
  std::map<Guest::Name, Entries> recognised_;
  uint64_t pause_timer_ = 0;
};

}  // namespace axccl::service
