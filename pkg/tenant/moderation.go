package tenant

// MaxModerationList is how many entries of one of its lists a community's moderators see at most, from its newest end. So
// many entries of the log are kept however old they are.
const MaxModerationList = 500
