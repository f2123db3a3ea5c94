package common

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// AutoCommit is how often a member commits by itself where it does.
const AutoCommit = 200 * time.Millisecond

// MemberOptions say how a client joins a group. README.md of the clients folder describes the command line.
type MemberOptions struct {
	Bootstrap, Topic, Group string
	Cooperative             bool
	Reset                   string // earliest, latest or none
	AutoCommit              bool
	Session, Heartbeat      time.Duration
	Instance                string // of a static member
	Tool                    string // another style of use, where a client has one
}

// Member is a client in a group. It reads by itself and calls Read, Assigned and Revoked; the methods may be called at any time.
type Member interface {
	// Commit what was read, and say whether the note went along as metadata.
	Commit(note string) (bool, error)
	Seek(partition int32, offset int64) error
	Pause(partition int32) error
	Resume(partition int32) error
	// Close leaves the group.
	Close() error
}

var telling sync.Mutex

func tell(event string, fields map[string]any) {
	fields["event"] = event
	fields["at"] = float64(time.Now().UnixMicro()) / 1000
	line, _ := json.Marshal(fields)
	telling.Lock()
	defer telling.Unlock()
	fmt.Println(string(line))
}

// Assigned tells which partitions the member got in addition; a generation below 0 is unknown.
func Assigned(partitions []int32, generation int32) {
	fields := map[string]any{"partitions": sorted(partitions)}
	if generation >= 0 {
		fields["generation"] = generation
	}
	tell("assigned", fields)
}

// Revoked tells which partitions the member gave up or lost.
func Revoked(partitions []int32) {
	tell("revoked", map[string]any{"partitions": sorted(partitions)})
}

func sorted(partitions []int32) []int32 {
	out := append([]int32{}, partitions...)
	slices.Sort(out)
	return out
}

// Read tells of a record.
func Read(partition int32, offset int64, value []byte) {
	tell("record", map[string]any{"partition": partition, "offset": offset, "value": string(value)})
}

// Failed tells of an error outside of a command.
func Failed(err error) {
	tell("failed", map[string]any{"command": "poll", "error": err.Error()})
}

// Absent says that the client does not have what was asked for, and ends the process.
func Absent(why string) {
	tell("absent", map[string]any{"why": why})
	os.Exit(0)
}

// IsMember tells whether the program was started as a member of a group; its first argument says so.
func IsMember() bool {
	return len(os.Args) > 1 && os.Args[1] == "member"
}

// HasTool tells whether this style of use was asked for.
func HasTool(tool string) bool {
	at := slices.Index(os.Args, "--tool")
	return at >= 0 && at+1 < len(os.Args) && os.Args[at+1] == tool
}

// RunMember makes a member and carries out commands until it has left.
func RunMember(module string, owners bool, start func(MemberOptions) (Member, error)) {
	options := memberOptions()
	tell("hello", map[string]any{"version": version(module), "owners": owners})
	member, err := start(options)
	if err != nil {
		Failed(err)
		os.Exit(1)
	}
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		words := strings.Fields(commands.Text())
		if words[0] == "leave" {
			break
		}
		if err := carryOut(member, words); err != nil {
			tell("failed", map[string]any{"command": words[0], "error": err.Error()})
		} else {
			tell("done", map[string]any{"command": words[0]})
		}
	}
	if err := member.Close(); err != nil {
		tell("failed", map[string]any{"command": "leave", "error": err.Error()})
	}
}

func memberOptions() MemberOptions {
	var o MemberOptions
	flags := flag.NewFlagSet("member", flag.ExitOnError)
	flags.StringVar(&o.Bootstrap, "bootstrap", "", "HOST:PORT of a broker")
	flags.StringVar(&o.Topic, "topic", "", "topic to subscribe to")
	flags.StringVar(&o.Group, "group", "", "group to join")
	flags.StringVar(&o.Reset, "reset", "earliest", "earliest, latest or none")
	flags.StringVar(&o.Instance, "instance", "", "name of a static member")
	flags.StringVar(&o.Tool, "tool", "", "another style of use")
	assignor := flags.String("assignor", "range", "range or cooperative-sticky")
	commit := flags.String("commit", "manual", "manual or auto")
	session := flags.Int("session-ms", 6000, "session timeout")
	heartbeat := flags.Int("heartbeat-ms", 300, "heartbeat interval")
	_ = flags.Parse(os.Args[2:])
	o.Cooperative, o.AutoCommit = *assignor != "range", *commit == "auto"
	o.Session, o.Heartbeat = time.Duration(*session)*time.Millisecond, time.Duration(*heartbeat)*time.Millisecond
	return o
}

func carryOut(member Member, words []string) error {
	if words[0] == "commit" {
		metadata, err := member.Commit(words[1])
		if err == nil && !metadata {
			tell("done", map[string]any{"command": "no-metadata"})
		}
		return err
	}
	partition, err := strconv.Atoi(words[1])
	if err != nil {
		return err
	}
	switch words[0] {
	case "seek":
		offset, err := strconv.ParseInt(words[2], 10, 64)
		if err != nil {
			return err
		}
		return member.Seek(int32(partition), offset)
	case "pause":
		return member.Pause(int32(partition))
	case "resume":
		return member.Resume(int32(partition))
	}
	return fmt.Errorf("no command %s", words[0])
}
