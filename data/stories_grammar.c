/* The grammar of the stories: first the plots, then the cast and the places.
 * stories.h explains the notation. */
#include "stories.h"

#include <stddef.h>

const char *const story_grammar[] = {
    "=story", "{opening} {lost}\n\n", "{opening} {afraid}\n\n",
    "{opening} {bake}\n\n", "{opening} {garden}\n\n", "{opening} {rescue}\n\n",
    "{opening} {share}\n\n", "{opening} {build}\n\n", "{opening} {learn}\n\n",
    "{opening} {rain}\n\n", "{opening} {night}\n\n",

    "=opening",
    "Once upon a time there was {hero.kind} named {hero}. {Hero} lived "
    "{home}. {trait}",
    "There once was {hero.kind} called {hero}. {Hero.he} lived {home}. {trait}",
    "{Hero} was {hero.kind} who lived {home}. {trait}",
    "Long ago, {home}, there lived {hero.kind}. {Hero.his} name was {hero}. "
    "{trait}",

    "=trait",
    "{Hero.he} was {kind|brave|curious|cheerful|gentle}, and {hero.he} liked "
    "to {hobby}. {has_friend}",
    "{has_friend} They liked to {hobby} together.",
    "Every morning {hero} liked to {hobby}. {has_friend}",
    "Everyone said that {hero} was very {kind|brave|curious|cheerful|gentle}. "
    "{has_friend}",

    "=has_friend", "{Hero.his} best friend was {friend}, {friend.kind}.",
    "{Hero} had a good friend, {friend.kind} named {friend}.",
    "Next door lived {friend}, {friend.kind}.",

    "=hobby", "sing", "count the clouds", "pick flowers", "play by the river",
    "walk in the woods", "draw pictures", "look for round stones",
    "listen to the birds",

    "=one_day",
    "One {sunny|windy|quiet|warm|cold|bright} {morning|day|afternoon}",
    "One day", "One {spring|summer|autumn} day",

    /* something is lost and found again */
    "=lost",
    "{lost_have} {lost_gone} {lost_search} {lost_help} {lost_found} {end_help}",

    "=lost_have", "{Hero} had a {toy}. {Hero.he} took it everywhere.",
    "For {hero.his} birthday {hero} got a {toy}. It was {hero.his} favourite "
    "thing.",
    "{Hero.his} grandmother had given {hero.him} a {toy}, and {hero} loved it.",

    "=lost_gone",
    "{one_day}, the {toy} was gone. \"Oh no,\" said {hero}, \"where is my "
    "{toy}?\"",
    "{one_day}, {hero} played {place}. When {hero.he} came home, the {toy} was "
    "not there.",
    "{one_day}, the wind blew hard, and it carried the {toy} away.",

    "=lost_search",
    "{Hero.he} looked {spot} and {hero.he} looked {place}, but {hero.he} could "
    "not find it. {sad}",
    "{Hero.he} looked here and {hero.he} looked there, but it was nowhere. "
    "{sad}",

    "=lost_help",
    "Then {friend} came by. \"{why_sad}\" asked {friend}. \"I have lost my "
    "{toy},\" said {hero}. \"Let us look together,\" said {friend}.",
    "{Hero.he} went to {friend} and told {friend.him} about the {toy}. "
    "\"{do_not_worry},\" said {friend}. \"I will help you.\"",

    "=lost_found",
    "They looked {spot}, and there it was! {Hero} held the {toy} tight and "
    "{thanked}",
    "After a while {friend} saw something {small|bright|funny} {spot}. It was "
    "the {toy}! {Hero} {jumped} and {thanked}",

    /* afraid of something */
    "=afraid",
    "But {hero} was afraid of {fear}. {afraid_hide} {afraid_talk} {afraid_try} "
    "{end_brave}",
    "There was only one thing {hero} did not like, and that was {fear}. "
    "{afraid_hide} {afraid_talk} {afraid_try} {end_brave}",

    "=afraid_hide",
    "{Hero.he} hid {under the bed|behind the door|under the table} and did not "
    "come out.",
    "When {hero.he} thought of {fear}, {hero.he} began to shake.",

    "=afraid_talk",
    "{one_day}, {friend} said, \"I was afraid of {fear} too, when I was "
    "small.\" "
    "\"What did you do?\" asked {hero}. \"I {calmed},\" said {friend}.",
    "\"{why_sad}\" asked {friend}. \"I am afraid of {fear},\" said {hero} in a "
    "{small|quiet} voice. \"Take my hand,\" said {friend}. \"We will be brave "
    "together.\"",

    "=calmed", "took a deep breath", "sang a little song", "counted to ten",

    "=afraid_try",
    "So {hero} {calmed}. "
    "Nothing bad happened. \"I did it!\" said {hero}, and {hero.he} {jumped}.",
    "{Hero} took one step, and then another. Soon {hero.he} was not afraid any "
    "more. \"Look at me!\" {hero.he} called, and {friend} was proud of "
    "{hero.him}.",

    /* something is baked for somebody */
    "=bake", "{bake_wish} {bake_lack} {bake_ask} {bake_done} {end_help}",

    "=bake_wish", "{one_day}, {hero} wanted to make {dish} for {guest}.",
    "It was the birthday of {guest}, and {hero} wanted to make {dish}.",

    "=bake_lack",
    "{Hero.he} took a big bowl and a spoon, but there was no {ingredient} in "
    "the house. {sad}",
    "{Hero.he} looked in the kitchen, but {hero.he} had no {ingredient}. "
    "\"{Dish} needs {ingredient},\" said {hero}. {sad}",

    "=bake_ask",
    "So {hero.he} went to the house of {friend}. \"Do you have some "
    "{ingredient}?\" {hero.he} asked. \"Yes, I do,\" said {friend}, \"and I "
    "will help you.\"",
    "Just then {friend} came to the door with a basket. In the basket was a "
    "lot "
    "of {ingredient}. \"You can have it,\" said {friend}. \"Friends share.\"",

    "=bake_done",
    "They stirred and they laughed, and soon the whole house smelled sweet. "
    "{Guest} ate three big pieces and said, \"This is the best I ever had.\"",
    "Together they made {dish}. It was warm and good, and {guest} smiled from "
    "ear to ear.",

    /* a seed and patience */
    "=garden",
    "{garden_seed} {garden_wait} {garden_talk} {garden_grow} {end_wait}",

    "=garden_seed",
    "{one_day}, {hero} found a {tiny|round|brown} seed {spot}. {Hero.he} put "
    "it "
    "in the ground behind the house.",
    "{one_day}, {friend} gave {hero} a {tiny|round|brown} seed. \"Put it in "
    "the "
    "ground,\" said {friend}, \"and wait.\"",

    "=garden_wait",
    "{Hero} waited one day and two days and three days, but nothing came up. "
    "{sad}",
    "Every morning {hero} looked at the ground, but there was only earth. "
    "{sad}",

    "=garden_talk",
    "\"A seed needs water and sun,\" said {friend}, \"and it needs time.\" So "
    "{hero} gave it water every day.",
    "\"{do_not_worry},\" said {friend}. \"Good things are slow.\" So {hero} "
    "waited, and the rain fell, and the sun shone.",

    "=garden_grow",
    "Then one morning there was a small green leaf. It grew and grew, and in "
    "the end it was {plant}. {Hero} {jumped}.",
    "At last something green came out of the ground. By the end of summer it "
    "was {plant}, and everyone came to see it.",

    /* an animal in need */
    "=rescue",
    "{rescue_hear} {rescue_try} {rescue_help} {rescue_done} {end_help}",

    "=rescue_hear",
    "{one_day}, {hero} was walking {place}. {Hero.he} heard a small cry. It "
    "was "
    "a {animal}, stuck {trap}!",
    "{one_day}, when {hero} wanted to {hobby}, {hero.he} saw a {animal} "
    "{trap}. "
    "It could not get out.",

    "=rescue_try",
    "{Hero} tried to reach it, but {hero.he} was too {small|short}. \"Do not "
    "be "
    "afraid,\" said {hero}. \"I will get help.\"",
    "{Hero} pulled and pulled, but it did not help. {sad}",

    "=rescue_help",
    "{Hero.he} ran to {friend} as fast as {hero.he} could. {Friend} brought "
    "{a long rope|a ladder|a big basket}.",
    "{Friend} heard the noise and came at once with {a long rope|a ladder|a "
    "big basket}. \"We can do it together,\" said {friend}.",

    "=rescue_done",
    "Slowly, very slowly, they got the {animal} out. It was cold and wet, so "
    "{hero} "
    "gave it {warm milk|a soft blanket|some bread}.",
    "One, two, three, and the {animal} was free! It {thanked_them} and ran "
    "home to "
    "its mother.",

    /* keeping and sharing */
    "=share",
    "{share_find} {share_keep} {share_alone} {share_give} {end_share}",

    "=share_find", "{one_day}, {hero} found a big basket of {food} {place}.",
    "{one_day}, {hero} came upon a tree {place}. Under it lay a heap of "
    "{food}.",

    "=share_keep",
    "\"They are all mine,\" said {hero}. {Friend} came and asked, \"May I have "
    "some {food}?\" But {hero} said no, and {friend} went away.",
    "{Friend} was hungry and looked at the {food}. \"Go away,\" said {hero}, "
    "\"I found them.\" {Friend} hung {friend.his} head and left.",

    "=share_alone",
    "{Hero} sat alone and ate and ate, until {hero.his} belly hurt. It was not "
    "nice to eat alone.",
    "But soon it was very quiet. Nobody laughed and nobody sang. {sad}",

    "=share_give",
    "So {hero} carried the {food} to {friend}. \"I am sorry,\" {hero.he} said. "
    "\"Half of the {food} are for you.\" {Friend} smiled, and they ate "
    "together.",
    "\"{Friend}!\" called {hero}. \"Come back! I want to share the {food} with "
    "you.\" They sat down in the grass, and everything tasted better.",

    /* building something */
    "=build", "{build_wish} {build_fail} {build_help} {build_done} {end_help}",

    "=build_wish",
    "{one_day}, {hero} wanted to build a {building}. {Hero.he} found some wood "
    "{spot} and began to work.",
    "{Hero} had a big dream. {Hero.he} wanted to have a {building} of "
    "{hero.his} own.",

    "=build_fail",
    "{Hero.he} worked all day, but in the evening the {building} fell down "
    "with "
    "a loud crash. {sad}",
    "The first {building} was too small, and the second {building} broke in "
    "two. {sad}",

    "=build_help",
    "{Friend} looked at the wood and said, \"{do_not_worry}. Let us try again, "
    "but slowly.\"",
    "\"{why_sad}\" asked {friend}. \"My {building} is broken,\" said {hero}. "
    "\"Then we will make a better one,\" said {friend}.",

    "=build_done",
    "{Hero} held the wood and {friend} held the nails. This time the "
    "{building} "
    "was strong, and they painted it {colour}.",
    "They worked for three days. When the {building} was ready, it was big and "
    "{colour}, and there was room for two.",

    /* learning something */
    "=learn", "{learn_wish} {learn_fail} {learn_help} {learn_done} {end_wait}",

    "=learn_wish",
    "{Hero} wanted to learn to {skill}. {Friend} could {skill} very well.",
    "{one_day}, {hero} saw how {friend} could {skill}. \"I want to do that "
    "too,\" said {hero}.",

    "=learn_fail",
    "{Hero.he} tried once and {hero.he} tried twice, but it did not work. "
    "{sad}",
    "\"It is too hard,\" said {hero}, and {hero.he} sat down in the grass. "
    "{sad}",

    "=learn_help",
    "\"{do_not_worry},\" said {friend}. \"I could not {skill} on my first day. "
    "Try a little every day.\"",
    "{Friend} sat down beside {hero.him}. \"Watch me,\" said {friend}, \"and "
    "then we will do it together.\"",

    "=learn_done",
    "{Hero} tried again and again. After a week {hero.he} could {skill} almost "
    "as well as {friend}. {Hero.he} {jumped}.",
    "So they tried it together every {morning|evening}. Then one day it "
    "worked! \"I can {skill}!\" called {hero}.",

    /* a day indoors */
    "=rain", "{rain_falls} {rain_sad} {rain_idea} {rain_end} {end_rain}",

    "=rain_falls",
    "{one_day}, {hero} wanted to play {place}, but dark clouds came and it "
    "began "
    "to {rain|snow}.",
    "It {rained|snowed} all night and it {rained|snowed} all morning. {Hero} "
    "stood at the window.",

    "=rain_sad", "\"I cannot go out,\" said {hero}. {sad}",
    "There was nobody to play with. {sad}",

    "=rain_idea",
    "Knock, knock! It was {friend}, wet from head to toe. \"I have an idea,\" "
    "said {friend}. \"Let us {indoors}.\"",
    "Then {hero} had an idea. {Hero.he} called {friend}, and they began to "
    "{indoors}.",

    "=rain_end",
    "They forgot all about the weather. When they looked up, there was a "
    "rainbow over the hill.",
    "They laughed so much that they did not hear the wind. At last the sun "
    "came "
    "out, but they played on.",

    /* going to sleep */
    "=night",
    "{night_awake} {night_look} {night_talk} {night_sleep} {end_night}",

    "=night_awake",
    "One night {hero} could not sleep. {Hero.he} turned to the left and "
    "{hero.he} turned to the right.",
    "It was late, and the house was dark, but {hero} lay in bed with open "
    "eyes.",

    "=night_look",
    "So {hero.he} looked out of the window. The moon was {round|thin|yellow}, "
    "and there were {a hundred|a thousand|so many} stars.",
    "{Hero.he} heard {an owl|the wind|the river}, and {hero.he} wondered what "
    "it said.",

    "=night_talk",
    "{Friend} was awake too. \"Shall I tell you a story?\" asked {friend}. "
    "\"Yes, please,\" said {hero}. So {friend} told {hero.him} about {tale}.",
    "\"Can you not sleep?\" asked {friend}. \"No,\" said {hero}. \"Then think "
    "of "
    "{tale},\" said {friend}, \"and breathe slowly.\"",

    "=night_sleep",
    "Before the story was over, {hero} was asleep. {Hero.he} dreamed of "
    "{tale}.",
    "{Hero.his} eyes grew heavy. {Hero.he} smiled, and soon {hero.he} was fast "
    "asleep.",

    /* what all plots use */
    "=sad", "{Hero} was very sad.", "{Hero} began to cry.",
    "A tear ran down {hero.his} face.", "{Hero} did not know what to do.",

    "=why_sad", "Why are you so sad?", "What is wrong, {hero}?",
    "Why do you cry?",

    "=do_not_worry", "Do not worry", "Do not cry", "Do not give up",

    "=jumped", "jumped for joy", "danced in a circle", "laughed out loud",
    "clapped {hero.his} hands",

    "=thanked", "thanked {friend}.", "said, \"Thank you, {friend}!\"",
    "gave {friend} a big hug.",

    "=thanked_them", "thanked them", "said, \"Thank you, {hero}!\"",

    "=end", "{Hero} and {friend} went home together, and they were happy.",
    "{end_rain}",

    "=end_rain",
    "From that day on, {hero} and {friend} were the best of friends.",
    "That night {hero} slept very well.",
    "\"What a good day,\" said {hero}. \"Yes,\" said {friend}, \"what a good "
    "day.\"",

    "=end_night", "The moon watched over them until the morning.",
    "In the morning {hero} told {friend} about {hero.his} dream.",
    "\"Good night, {hero},\" said {friend} in a quiet voice.",

    "=end_help", "{end}",
    "And {hero} never forgot that it is good to ask for help.",
    "{Hero} had learned that a friend makes everything better. The end.",

    "=end_brave", "{end}", "And {hero} never forgot how it feels to be brave.",
    "{Hero} had learned that fear is small when you are not alone. The end.",

    "=end_wait", "{end}", "And {hero} never forgot that good things take time.",
    "{Hero} had learned that you must not give up. The end.",

    "=end_share", "{end}", "And {hero} never forgot that it is good to share.",
    "{Hero} had learned that sharing makes two people happy. The end.",

    /* the cast: name/he/him/his/kind */
    "@hero", "Lily/she/her/her/a little girl", "Tom/he/him/his/a little boy",
    "Anna/she/her/her/a clever girl", "Ben/he/him/his/a clever boy",
    "Mia/she/her/her/a girl with red hair",
    "Sam/he/him/his/a boy with a green hat", "Rosa/she/her/her/a small mouse",
    "Pip/he/him/his/a small mouse", "Bruno/he/him/his/a brown bear",
    "Flora/she/her/her/a young fox", "Max/he/him/his/a black dog",
    "Nina/she/her/her/a white cat", "Otto/he/him/his/a little owl",
    "Daisy/she/her/her/a yellow duck", "Hugo/he/him/his/a grey rabbit",
    "Emma/she/her/her/a baby elephant",

    "@friend", "Jack/he/him/his/a tall boy", "Lucy/she/her/her/a merry girl",
    "Oscar/he/him/his/an old turtle", "Bella/she/her/her/a brown horse",
    "Fred/he/him/his/a green frog", "Molly/she/her/her/a white sheep",
    "Leo/he/him/his/a little lion", "Zoe/she/her/her/a quick squirrel",
    "Paul/he/him/his/a grey goose", "Ruby/she/her/her/a red hen",
    "Theo/he/him/his/a wise old badger", "Clara/she/her/her/a spotted cow",

    "@home", "in a small house by the sea", "in a village on a hill",
    "near a big green forest", "on a farm", "in a house with a blue door",
    "at the end of a long road",

    "@place", "by the river", "in the meadow", "in the forest",
    "near the old mill", "on the hill", "by the lake",

    "=spot", "under a bush", "behind the barn", "in the tall grass",
    "beside a big stone", "under the old bridge", "at the foot of a tree",
    "in the hay",

    "@toy", "red ball", "blue kite", "wooden boat", "toy train", "silver bell",
    "yellow scarf", "little drum",

    "@fear", "the dark", "the thunder", "deep water", "the big dog next door",
    "high places", "the wind at night",

    "@dish", "a cake", "an apple pie", "a pot of soup", "a loaf of bread",
    "a plum cake",

    "@guest", "Grandmother", "Grandfather", "Mother", "Father", "the teacher",

    "@ingredient", "flour", "butter", "honey", "milk", "salt",

    "@plant", "a tall sunflower", "a big orange pumpkin",
    "a rose bush with red roses", "a young apple tree",
    "a bean as high as the roof",

    "@animal", "baby bird", "kitten", "little lamb", "young hedgehog", "puppy",

    "@trap", "in a deep hole", "in the mud", "high up in a tree",
    "behind a fence", "on a rock in the river",

    "@food", "apples", "nuts", "berries", "pears", "cookies",

    "@building", "boat", "tree house", "bridge", "bird house", "cart",

    "@colour", "red", "blue", "green", "yellow", "white",

    "@skill", "swim", "whistle", "climb a tree", "skate on the ice",
    "play the flute", "read", "ride a bicycle",

    "@indoors", "build a tent out of blankets", "paint pictures of the sea",
    "bake cookies", "play hide and seek", "sing one song after another",
    "make hats out of paper",

    "@tale", "a ship that sailed to the moon", "a king who lost his crown",
    "a star that fell into the sea", "a whale who could sing",
    "a garden where it was always spring",

    NULL};
