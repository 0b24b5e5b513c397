package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// The bounds of a file; they are far above what anybody wants.
const (
	maxFile        = 64 << 10
	maxSteps       = 32
	maxSubscribers = 10_000
	maxChannels    = 64
	maxPublishers  = 64
	maxRate        = 1000
	// maxTopicRate keeps what a client asks for again after a pause below the 500 events that a relay returns.
	maxTopicRate = 5
)

// Scenario is what is done during one run.
type Scenario struct {
	// Name is that of the file, without its extension.
	Name string `yaml:"-"`
	// About says in a line what it is good for.
	About string `yaml:"about"`
	// Load is who uses the relay meanwhile.
	Load Load `yaml:"load"`
	// Steps are what is done, at most 32.
	Steps []Step `yaml:"steps"`
}

// Load is who uses the relay. Subscribers are spread over the channels; each fourth also listens to what is in no
// channel. All are members of the private channel that they listen to.
type Load struct {
	// Subscribers is the number of connections that listen, each with a key of its own; 500 by default.
	Subscribers int `yaml:"subscribers"`
	// Publishers is the number of connections that publish; 4 by default.
	Publishers int `yaml:"publishers"`
	// Rate is how many events are published a second, spread over all topics; 36 by default, at most five for a topic. Of
	// those in channels one in ten is ephemeral.
	Rate int `yaml:"rate"`
	// Public and Private are the number of channels of each sort; 4 by default.
	Public  int `yaml:"public"`
	Private int `yaml:"private"`
	// Churners is how many subscribers of each private channel are removed and added all the while, in turn; 4 by
	// default. The others stay.
	Churners int `yaml:"churners"`
	// Churn is the time from one such change of a channel to the next; 500 ms by default.
	Churn time.Duration `yaml:"churn"`
}

// Topics is the number of topics that are published to: the channels, and what is in none.
func (l *Load) Topics() int { return l.Public + l.Private + 1 }

// Defaults is the load of a scenario that says nothing of it.
func Defaults() Load {
	return Load{Subscribers: 500, Publishers: 4, Rate: 36, Public: 4, Private: 4, Churners: 4, Churn: 500 * time.Millisecond}
}

// Check says what is wrong with a load, after it was read or changed.
func (l *Load) Check() error {
	within := func(what string, n, least, most int) error {
		if n < least || n > most {
			return fmt.Errorf("load: %s must be %d to %d, not %d", what, least, most, n)
		}
		return nil
	}
	err := errors.Join(
		within("subscribers", l.Subscribers, 1, maxSubscribers), within("publishers", l.Publishers, 1, maxPublishers),
		within("public", l.Public, 1, maxChannels), within("private", l.Private, 0, maxChannels),
		within("churners", l.Churners, 0, maxSubscribers), within("rate", l.Rate, 1, min(maxRate, maxTopicRate*l.Topics())),
	)
	if l.Churn < time.Millisecond {
		err = errors.Join(err, fmt.Errorf("load: churn must be a time, not %s", l.Churn))
	}
	return err
}

// Parse reads a file. Names of fields that it does not know are errors.
func Parse(file string, content []byte) (*Scenario, error) {
	if len(content) > maxFile {
		return nil, fmt.Errorf("read %s: more than %d bytes", file, maxFile)
	}
	s := &Scenario{Name: strings.TrimSuffix(path.Base(file), path.Ext(file)), Load: Defaults()}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	err := decoder.Decode(s)
	if err == nil {
		err = s.Load.Check()
	}
	if err == nil && len(s.Steps) > maxSteps {
		err = fmt.Errorf("more than %d steps", maxSteps)
	}
	for i := range s.Steps {
		if err == nil {
			if err = s.Steps[i].check(); err != nil {
				err = fmt.Errorf("step %d: %w", i+1, err)
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return s, nil
}
