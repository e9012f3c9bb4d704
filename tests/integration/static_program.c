/* Statically linked: no dynamic loader runs, so no preload reaches it. Exits with a status that the test knows. */
int main(void) { return 23; }
