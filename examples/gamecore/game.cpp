// A game process that drives its own sessions: CartPole, over plain TCP. C++17 and POSIX sockets, no library.
//
//     g++ -std=c++17 -O2 -pthread examples/gamecore/game.cpp -o cartpole
//     ./cartpole [games=16] [host=127.0.0.1] [port=8001] [token]
//
// plays this many games at once, one after another in each thread, until the gateway is gone.

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

struct Lost : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct Reply {
    int status;
    std::string body;
};

// One connection. A session lives in the gateway at its other end, so a game keeps the connection.
class Gateway {
public:
    Gateway(const std::string& host, const std::string& port, std::string token) : token_(std::move(token)) {
        addrinfo hints{}, *found = nullptr;
        hints.ai_socktype = SOCK_STREAM;
        if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) throw Lost("no such host");
        socket_ = socket(found->ai_family, SOCK_STREAM, 0);
        const bool connected = connect(socket_, found->ai_addr, found->ai_addrlen) == 0;
        freeaddrinfo(found);
        if (!connected) {
            close(socket_);
            throw Lost("nobody answers");
        }
    }
    ~Gateway() { close(socket_); }
    Gateway(const Gateway&) = delete;

    // A frame: the lengths of head and body, big-endian; the head, with one line per field; the body.
    Reply ask(const std::string& session, const std::string& kind, const std::string& body) {
        std::string head = "session: " + session + "\nstep_kind: " + kind + "\n";
        if (!token_.empty()) head += "token: " + token_ + "\n";
        uint32_t sizes[2] = {htonl(head.size()), htonl(body.size())};
        const std::string frame = std::string(reinterpret_cast<char*>(sizes), sizeof sizes) + head + body;
        for (size_t sent = 0; sent < frame.size();) {
            const ssize_t now = send(socket_, frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
            if (now <= 0) throw Lost("the connection broke");
            sent += now;
        }
        const std::string replied = read(sizeof sizes);
        std::copy(replied.begin(), replied.end(), reinterpret_cast<char*>(sizes));
        const std::string fields = read(ntohl(sizes[0]));  // "status: 200", then the fields that are returned
        return {std::stoi(fields.substr(fields.find(':') + 1)), read(ntohl(sizes[1]))};
    }

private:
    std::string read(size_t count) {
        std::string bytes(count, '\0');
        for (size_t got = 0; got < count;) {
            const ssize_t now = recv(socket_, &bytes[got], count - got, 0);
            if (now <= 0) throw Lost("the connection broke");
            got += now;
        }
        return bytes;
    }

    std::string token_;
    int socket_;
};

struct CartPole {
    double x, speed, angle, turn;
    int steps = 0;
    bool fallen = false;

    explicit CartPole(std::mt19937& random) {
        std::uniform_real_distribution<double> start(-0.05, 0.05);
        x = start(random), speed = start(random), angle = start(random), turn = start(random);
    }

    bool step(int action) {
        const double pull = (action == 1 ? 10.0 : -10.0) + 0.05 * turn * turn * std::sin(angle), c = std::cos(angle);
        const double bend = (9.8 * std::sin(angle) - c * pull / 1.1) / (0.5 * (4.0 / 3.0 - 0.1 * c * c / 1.1));
        const double push = (pull - 0.05 * bend * c) / 1.1;
        x += 0.02 * speed, speed += 0.02 * push, angle += 0.02 * turn, turn += 0.02 * bend;
        fallen = std::abs(x) > 2.4 || std::abs(angle) > M_PI / 15;
        return fallen || ++steps == 500;  // a game is cut off after 500 steps
    }

    std::string message(double reward, const char* more = "") const {
        char text[200];
        std::snprintf(text, sizeof text, R"({"observation": [%.9g, %.9g, %.9g, %.9g], "reward": %g%s})", x, speed,
                      angle, turn, reward, more);
        return text;
    }
};

// Play one game. It needs no "start": "auto" is a tick that opens the session if it is not open.
bool play(Gateway& gateway, std::mt19937& random) {
    CartPole pole(random);
    const std::string session = "cpp-" + std::to_string(random()) + "-" + std::to_string(random());
    double reward = 0.0;
    for (bool over = false; !over; reward = 1.0) {
        const Reply reply = gateway.ask(session, "auto", pole.message(reward));
        if (reply.status == 429 || reply.status == 503) return false;  // no weights yet, or no room
        if (reply.status != 200) throw std::runtime_error(reply.body);
        over = pole.step(std::atoi(reply.body.c_str() + reply.body.find(':') + 1));  // {"action": 1}
    }
    gateway.ask(session, "stop", pole.message(reward, pole.fallen ? R"(, "out_of_time": false)" : R"(, "out_of_time": true)"));
    return true;
}

void keep_playing(const std::string& host, const std::string& port, const std::string& token) {
    std::mt19937 random{std::random_device{}()};
    for (bool played = false;;) {
        try {
            Gateway gateway(host, port, token);
            for (;;) {
                if (play(gateway, random)) played = true;
                else std::this_thread::sleep_for(std::chrono::seconds(1));
            }
        } catch (const Lost& lost) {
            if (played && std::string(lost.what()) == "nobody answers") return;  // the gateway is gone
            if (!played) std::this_thread::sleep_for(std::chrono::seconds(1));  // the gateway is still starting
        } catch (const std::exception& error) {
            std::fprintf(stderr, "%s\n", error.what());
            return;
        }
    }
}

int main(int count, char** words) {
    auto word = [&](int place, const char* otherwise) { return std::string(place < count ? words[place] : otherwise); };
    std::vector<std::thread> threads;
    for (int game = std::stoi(word(1, "16")); game > 0; --game)
        threads.emplace_back(keep_playing, word(2, "127.0.0.1"), word(3, "8001"), word(4, ""));
    for (std::thread& thread : threads) thread.join();
}
